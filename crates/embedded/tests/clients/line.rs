//! A line to the server that can be cut: watches end in the middle, and none is opened until it is mended.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use tokio::sync::watch;

type Bodies = UnsyncBoxBody<Bytes, <Body as http_body::Body>::Error>;

#[derive(Debug, Clone)]
pub struct Line {
    is_whole: Arc<watch::Sender<bool>>,
}

impl Line {
    /// A line, and a client at its end.
    pub fn to(client: kube::Client) -> (Self, kube::Client) {
        let line = Self {
            is_whole: Arc::new(watch::Sender::new(true)),
        };
        let here = line.clone();
        let service = tower::service_fn(move |request| here.clone().send(client.clone(), request));
        (line, kube::Client::new(service, "default"))
    }

    pub fn cut(&self) {
        self.is_whole.send_replace(false);
    }

    pub fn mend(&self) {
        self.is_whole.send_replace(true);
    }

    async fn send(self, client: kube::Client, request: Request<Body>) -> Result<Response<Bodies>, kube::Error> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if !is_watch {
            return Ok(client.send(request).await?.map(Body::boxed_unsync));
        }
        let _ = self.is_whole.subscribe().wait_for(|is_whole| *is_whole).await;
        let (parts, body) = client.send(request).await?.into_parts();
        let mut line = self.is_whole.subscribe();
        let end = async move {
            let _ = line.wait_for(|is_whole| !is_whole).await;
        };
        let bytes = body.into_data_stream().take_until(Box::pin(end));
        let frames = bytes.map(|bytes: Result<Bytes, _>| bytes.map(Frame::data));
        Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
    }
}
