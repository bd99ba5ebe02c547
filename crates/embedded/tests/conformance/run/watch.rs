//! An open watch, read line by line.

use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

pub(super) struct Watch {
    pub(super) body: Body,
    pub(super) patience: Duration,
    /// Of the line that is not whole yet.
    pub(super) buffer: Vec<u8>,
}

impl Watch {
    /// `None`: closed by the server.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|error| error.to_string());
            }
            match timeout(self.patience, self.body.frame()).await {
                Err(_) => return Err("nothing came".to_owned()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(error.to_string()),
                Ok(Some(Ok(frame))) => self.buffer.extend(frame.into_data().unwrap_or_default()),
            }
        }
    }
}
