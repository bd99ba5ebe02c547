use super::*;
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::service::service_fn;
use std::convert::Infallible;
use tokio::net::TcpListener;

const LONG: Duration = Duration::from_secs(60);

/// What the server answers to a service's name.
#[derive(Clone, Copy)]
enum Reply {
    Health(u8),
    Status(&'static str, &'static str),
    Http(u16),
    Never,
}

type Frames = StreamBody<futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

fn frames(frames: Vec<Frame<Bytes>>) -> Frames {
    let frames: Vec<Result<Frame<Bytes>, Infallible>> = frames.into_iter().map(Ok).collect();
    StreamBody::new(futures::stream::iter(frames))
}

fn trailers(status: &str, message: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert("grpc-status", status.parse().unwrap());
    map.insert("grpc-message", message.parse().unwrap());
    map
}

async fn answered(request: Request<Incoming>, reply: fn(&str) -> Reply) -> Result<Response<Frames>, Infallible> {
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    assert_eq!(request.headers()["content-type"], "application/grpc");
    assert_eq!(request.headers()["te"], "trailers");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let service = String::from_utf8(body.get(7..).unwrap_or_default().to_vec()).unwrap();
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(match reply(&service) {
        Reply::Health(status) => {
            let data = Bytes::from(vec![0, 0, 0, 0, 2, 8, status]);
            let body = frames(vec![Frame::data(data), Frame::trailers(trailers("0", ""))]);
            response.body(body).unwrap()
        }
        Reply::Status(code, message) => response
            .header("grpc-status", code)
            .header("grpc-message", message)
            .body(frames(Vec::new()))
            .unwrap(),
        Reply::Http(status) => response.status(status).body(frames(Vec::new())).unwrap(),
        Reply::Never => std::future::pending().await,
    })
}

async fn server(reply: fn(&str) -> Reply) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let service = service_fn(move |request| answered(request, reply));
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    port
}

#[tokio::test]
async fn n8_grpc_health_is_read_per_service_and_told_in_the_kubelets_words() {
    let port = server(|service| match service {
        "" => Reply::Health(1),
        "sick" => Reply::Health(2),
        "odd" => Reply::Health(9),
        "none" => Reply::Status("5", "unknown service %22none%22"),
        "old" => Reply::Status("12", "unknown method"),
        "slow" => Reply::Status("4", "late"),
        _ => Reply::Http(404),
    })
    .await;
    let rows = [
        ("", Outcome::Success, "service healthy"),
        (
            "sick",
            Outcome::Failure,
            "service unhealthy (responded with \"NOT_SERVING\")",
        ),
        ("odd", Outcome::Failure, "service unhealthy (responded with \"9\")"),
        (
            "none",
            Outcome::Failure,
            "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service \"none\"",
        ),
        (
            "old",
            Outcome::Failure,
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown method",
        ),
        (
            "slow",
            Outcome::Failure,
            "timeout: health rpc did not complete within 60s",
        ),
        (
            "web",
            Outcome::Failure,
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unexpected HTTP \
             status code received from server: 404 Not Found",
        ),
    ];
    for (service, outcome, message) in rows {
        let answer = probe("127.0.0.1", port, service, LONG).await;
        assert_eq!(answer, Answer::new(outcome, message), "{service}");
    }
}

#[tokio::test]
async fn n8_grpc_that_is_not_answered_in_time_fails() {
    let port = server(|_| Reply::Never).await;
    let answer = probe("127.0.0.1", port, "", Duration::from_secs(1)).await;
    assert_eq!(
        answer,
        Answer::new(Outcome::Failure, "timeout: health rpc did not complete within 1s")
    );
}

#[tokio::test]
async fn n8_grpc_waits_for_a_server_that_comes_up_within_its_time() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let asking = tokio::spawn(async move { probe("127.0.0.1", port, "", LONG).await });
    tokio::task::yield_now().await;
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service_fn(|request| answered(request, |_| Reply::Health(1)));
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    assert_eq!(asking.await.unwrap().outcome, Outcome::Success);
}

#[test]
fn messages_are_written_and_read_to_the_letter_of_protobuf() {
    assert_eq!(question(""), Bytes::from_static(&[0, 0, 0, 0, 0]));
    assert_eq!(
        question("ab"),
        Bytes::from_static(&[0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b'])
    );
    let long = question(&"x".repeat(300));
    assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
    assert_eq!(answer(&[0, 0, 0, 0, 0]), Some(0));
    assert_eq!(answer(&[0, 0, 0, 0, 2, 8, 1]), Some(1));
    // A field that is not known, before the one that is.
    assert_eq!(answer(&[0, 0, 0, 0, 6, 0x12, 2, 1, 1, 8, 2]), Some(2));
    for broken in [
        &[][..],
        &[0, 0, 0, 0, 2, 8],
        &[1, 0, 0, 0, 0],
        &[0, 0, 0, 0, 1, 8],
        &[0, 0, 0, 0, 2, 0x12, 9],
    ] {
        assert_eq!(answer(broken), None, "{broken:?}");
    }
}
