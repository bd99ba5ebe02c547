//! The relay between real sockets, in a block that no cluster takes by itself in tests.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::endpoints::tests::{service, slice};
use super::*;

/// A server that says who it is, then who calls, then what it was told until the end.
struct Echo {
    address: SocketAddrV4,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(name: char) -> Echo {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else {
        panic!("not IPv4");
    };
    let task = tokio::spawn(async move {
        while let Ok((mut client, from)) = listener.accept().await {
            tokio::spawn(async move {
                client
                    .write_all(format!("{name} {} ", from.ip()).as_bytes())
                    .await
                    .unwrap();
                let mut told = Vec::new();
                client.read_to_end(&mut told).await.unwrap();
                // Only after the other side has ended: half of the connection still carries.
                client.write_all(&told).await.unwrap();
            });
        }
    });
    Echo { address, task }
}

/// A free port, to be a Service's.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A Service's address that belongs to one test.
fn cluster_ip(test: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 191, 254, test)
}

fn web(address: Ipv4Addr, port: u16, more: Value) -> Service {
    let mut spec = json!({"clusterIP": address.to_string(), "ports": [{"port": port}]});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    service("web", spec)
}

/// One slice per endpoint, since each has its own port.
fn slices(endpoints: &[&Echo]) -> Vec<EndpointSlice> {
    let slice = |echo: &&Echo| {
        let addresses = json!([{"addresses": [echo.address.ip().to_string()]}]);
        slice("web", json!([{"port": echo.address.port()}]), addresses)
    };
    endpoints.iter().map(slice).collect()
}

/// Says something, ends its half, and hears the rest.
async fn talk(address: SocketAddrV4) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"hello").await?;
    stream.shutdown().await?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await?;
    Ok(heard)
}

/// Until a condition holds.
async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not come to hold");
}

#[tokio::test]
async fn w5_a_connection_goes_to_one_endpoint_and_each_half_ends_by_itself() {
    let relay = Relay::new(7).unwrap();
    let (one, two) = (echo('1').await, echo('2').await);
    let address = SocketAddrV4::new(cluster_ip(1), free_port());
    let services = [web(*address.ip(), address.port(), json!({}))];
    assert!(relay.set(&services, &slices(&[&one, &two])).await.is_empty());
    let mut heard = String::new();
    for _ in 0..32 {
        let said = talk(address).await.unwrap();
        assert!(said.ends_with(" 127.0.0.1 hello"), "{said}");
        heard.extend(said.chars().next());
    }
    assert!(heard.contains('1') && heard.contains('2'), "{heard}");
    let again = Relay::new(7).unwrap();
    relay.set(&[], &[]).await;
    assert!(again.set(&services, &slices(&[&one, &two])).await.is_empty());
    assert_eq!(again.listening().await, [address]);
    let mut same = String::new();
    for _ in 0..32 {
        same.extend(talk(address).await.unwrap().chars().next());
    }
    assert_eq!(heard, same, "E1: chosen by the seed");
}

#[tokio::test]
async fn w5_without_endpoints_connections_are_refused_until_there_is_one() {
    let relay = Relay::new(0).unwrap();
    let address = SocketAddrV4::new(cluster_ip(2), free_port());
    let services = [web(*address.ip(), address.port(), json!({}))];
    assert!(relay.set(&services, &[]).await.is_empty());
    assert_eq!(
        talk(address).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionRefused
    );
    let one = echo('1').await;
    relay.set(&services, &slices(&[&one])).await;
    assert_eq!(talk(address).await.unwrap(), "1 127.0.0.1 hello");
    relay.set(&services, &[]).await;
    assert_eq!(
        talk(address).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionRefused
    );
    assert!(
        relay.set(&services, &slices(&[&one])).await.is_empty(),
        "free again at once"
    );
    assert_eq!(talk(address).await.unwrap(), "1 127.0.0.1 hello");
}

#[tokio::test]
async fn w5_a_connection_stays_when_its_endpoint_is_no_longer_ready_and_ends_with_the_relay() {
    let relay = Relay::new(0).unwrap();
    let (one, two) = (echo('1').await, echo('2').await);
    let address = SocketAddrV4::new(cluster_ip(3), free_port());
    let services = [web(*address.ip(), address.port(), json!({}))];
    relay.set(&services, &slices(&[&one])).await;
    let mut stays = TcpStream::connect(address).await.unwrap();
    let mut greeting = [0; 12];
    stays.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"1 127.0.0.1 ");
    relay.set(&services, &slices(&[&two])).await;
    assert!(talk(address).await.unwrap().starts_with('2'));
    stays.write_all(b"still here").await.unwrap();
    drop(relay);
    let mut rest = String::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), stays.read_to_string(&mut rest)).await;
    assert!(ended.is_ok(), "the relay's end ends its connections");
}

#[tokio::test]
async fn w5_a_node_port_is_on_127_0_0_1_and_leads_to_the_same_endpoints() {
    let relay = Relay::new(0).unwrap();
    let one = echo('1').await;
    let (port, node_port) = (free_port(), free_port());
    let mut service = web(cluster_ip(4), port, json!({"type": "NodePort"}));
    service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(i32::from(node_port));
    relay.set(&[service], &slices(&[&one])).await;
    for address in [
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, node_port),
        SocketAddrV4::new(cluster_ip(4), port),
    ] {
        assert_eq!(talk(address).await.unwrap(), "1 127.0.0.1 hello");
    }
}

#[tokio::test]
async fn w5_a_client_with_affinity_always_comes_to_the_same_endpoint() {
    let relay = Relay::new(0).unwrap();
    let echoes = [echo('1').await, echo('2').await, echo('3').await, echo('4').await];
    let address = SocketAddrV4::new(cluster_ip(5), free_port());
    let services = [web(
        *address.ip(),
        address.port(),
        json!({"sessionAffinity": "ClientIP"}),
    )];
    relay.set(&services, &slices(&echoes.iter().collect::<Vec<_>>())).await;
    let first = talk(address).await.unwrap();
    for _ in 0..16 {
        assert_eq!(talk(address).await.unwrap(), first);
    }
}

#[tokio::test]
async fn w5_who_calls_from_an_address_of_his_own_is_seen_under_it() {
    let relay = Relay::new(0).unwrap();
    let one = echo('1').await;
    let address = SocketAddrV4::new(cluster_ip(6), free_port());
    relay
        .set(&[web(*address.ip(), address.port(), json!({}))], &slices(&[&one]))
        .await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.191.1.77:0".parse().unwrap()).unwrap();
    let mut stream = socket.connect(address.into()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "1 127.191.1.77 ");
}

#[tokio::test]
async fn w4_a_port_that_cannot_be_had_is_told_once_and_tried_again() {
    let relay = Relay::new(0).unwrap();
    let one = echo('1').await;
    let address = SocketAddrV4::new(cluster_ip(7), free_port());
    let taken = std::net::TcpListener::bind(address).unwrap();
    let services = [web(*address.ip(), address.port(), json!({}))];
    let news = relay.set(&services, &slices(&[&one])).await;
    assert_eq!(news.len(), 1);
    assert_eq!(news[0].service.to_string(), "shop/web");
    let expected = format!("port {} of Service shop/web is taken at 127.191.254.7", address.port());
    assert!(news[0].message.starts_with(&expected), "{}", news[0].message);
    assert!(relay.set(&services, &slices(&[&one])).await.is_empty(), "no news");
    drop(taken);
    assert!(relay.set(&services, &slices(&[&one])).await.is_empty());
    assert_eq!(talk(address).await.unwrap(), "1 127.0.0.1 hello");
}

#[test]
fn w4_a_port_below_1024_gets_a_sentence_with_a_way_out() {
    let key = ServiceKey {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let error = io::Error::from(io::ErrorKind::PermissionDenied);
    let told = sentence(&key, "127.64.230.1:80".parse().unwrap(), &error);
    assert_eq!(
        told,
        "port 80 of Service shop/web is below 1024, which this user may not listen on: reach its pods by their own \
         addresses, give the Service a port of 1024 or more, or run usher as root"
    );
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_resets_the_connection() {
    let relay = Relay::new(0).unwrap();
    let gone = echo('1').await;
    let address = SocketAddrV4::new(cluster_ip(8), free_port());
    let slices = slices(&[&gone]);
    let endpoint = gone.address;
    drop(gone);
    until(|| async { TcpStream::connect(endpoint).await.is_err() }).await;
    relay
        .set(&[web(*address.ip(), address.port(), json!({}))], &slices)
        .await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let error = stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}
