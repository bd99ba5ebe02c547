//! 11.6: commands in real containers, through the API.

/// The test of the API's side has it by hand, and asks more of it than we do.
#[allow(dead_code)]
#[path = "../pod_doors/socket.rs"]
mod socket;

use serde_json::{Value, json};
use usher_embedded::{ListenOptions, Listening};

use crate::world::sh;
use socket::Socket;

/// Where the socket connects to.
struct World {
    listening: Listening,
}

const PROTOCOL: &str = "v5.channel.k8s.io";

/// All that came by each channel, and the status in the last one.
async fn finish(socket: &mut Socket) -> (String, String, Value) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match socket.message().await {
            (1, bytes) => out.extend(bytes),
            (2, bytes) => err.extend(bytes),
            (3, bytes) => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                return (text(out), text(err), serde_json::from_slice(&bytes).unwrap());
            }
            (channel, bytes) => panic!("channel {channel}: {bytes:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_beside_a_container_s_program_with_its_files_and_variables() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let world = crate::world::World::new();
    let mut container = sh("c", "echo here > /tmp/file; exec sleep 1000");
    container["env"] = json!([{"name": "WHO", "value": "me"}]);
    world.run("p", json!({"containers": [container]})).await;
    world.running("p").await;
    let listening = world.cluster.listen(ListenOptions::default()).await.unwrap();
    let way = World { listening };
    crate::world::until("the file is there", || async {
        let script = "cat%20/tmp/file;%20echo%20$WHO;%20echo%20oops%20%3E%262;%20exit%207";
        let query = format!("command=sh&command=-c&command={script}&stdout=true&stderr=true");
        let mut socket = Socket::exec(&way, PROTOCOL, &query).await;
        let (out, err, status) = finish(&mut socket).await;
        let code = status.pointer("/details/causes/0/message").cloned();
        if (out.as_str(), err.as_str(), code) == ("here\nme\n", "oops\n", Some(json!("7"))) {
            Ok(())
        } else {
            Err(format!("{out:?} {err:?} {status}"))
        }
    })
    .await;
    let mut socket = Socket::exec(&way, PROTOCOL, "command=head&command=-1&stdin=true&stdout=true").await;
    socket.send(0x82, b"\0said\n").await;
    let (out, _, status) = finish(&mut socket).await;
    assert_eq!((out.as_str(), &status["status"]), ("said\n", &json!("Success")));
}
