//! From a request to a connection of its own: which way the client asks for, and how it is told that it has it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName};
use ring::digest;

use crate::fault::Fault;

/// RFC 6455, 1.3: proves that the answer is a WebSocket server's.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How streams are told apart on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    V4,
    /// V4, and a client may end its input.
    V5,
}

impl Protocol {
    /// The best first.
    const ALL: [Self; 2] = [Self::V5, Self::V4];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4.channel.k8s.io",
            Self::V5 => "v5.channel.k8s.io",
        }
    }
}

/// What was agreed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) protocol: Protocol,
    /// Of the answer 101.
    pub(super) headers: Vec<(HeaderName, String)>,
}

fn words(headers: &HeaderMap, name: HeaderName) -> Vec<&str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect()
}

/// Agrees on a WebSocket with the client, or tells what to do instead.
pub(super) fn agree(headers: &HeaderMap) -> Result<Agreed, Fault> {
    let has = |name: HeaderName, word: &str| {
        words(headers, name)
            .iter()
            .any(|found| found.eq_ignore_ascii_case(word))
    };
    if has(UPGRADE, "SPDY/3.1") {
        return Err(Fault::bad_request(
            "SPDY is not spoken here, WebSocket is: use kubectl 1.31 or later (1.29 and 1.30 with the environment variable \
             KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true)",
        ));
    }
    if !has(UPGRADE, "websocket") || !has(CONNECTION, "upgrade") {
        return Err(Fault::bad_request("Upgrade request required"));
    }
    if !has(SEC_WEBSOCKET_VERSION, "13") {
        return Err(Fault::bad_request(
            "Sec-WebSocket-Version: only version 13 is spoken here",
        ));
    }
    let key = words(headers, SEC_WEBSOCKET_KEY).first().copied().unwrap_or_default();
    if BASE64_STANDARD.decode(key).map_or(0, |key| key.len()) != 16 {
        return Err(Fault::bad_request("Sec-WebSocket-Key: must be 16 bytes in base64"));
    }
    let offered = words(headers, SEC_WEBSOCKET_PROTOCOL);
    let protocol = Protocol::ALL
        .into_iter()
        .find(|protocol| offered.contains(&protocol.name()));
    let Some(protocol) = protocol else {
        return Err(Fault::bad_request(format!(
            "Sec-WebSocket-Protocol: none of [{}] is spoken here; offer v5.channel.k8s.io or v4.channel.k8s.io",
            offered.join(" ")
        )));
    };
    Ok(Agreed {
        protocol,
        headers: vec![
            (UPGRADE, "websocket".to_owned()),
            (CONNECTION, "Upgrade".to_owned()),
            (SEC_WEBSOCKET_ACCEPT, accept(key)),
            (SEC_WEBSOCKET_PROTOCOL, protocol.name().to_owned()),
        ],
    })
}

fn accept(key: &str) -> String {
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    BASE64_STANDARD.encode(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    const GOOD: [(&str, &str); 5] = [
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v4.channel.k8s.io, v5.channel.k8s.io"),
    ];

    #[test]
    fn the_best_protocol_of_those_offered_is_agreed_on() {
        let agreed = agree(&headers(&GOOD)).unwrap();
        assert_eq!(agreed.protocol, Protocol::V5);
        // The key and its answer are RFC 6455's own.
        assert_eq!(agreed.headers[2].1, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let mut old = GOOD;
        old[4].1 = "base64.channel.k8s.io,v4.channel.k8s.io";
        assert_eq!(agree(&headers(&old)).unwrap().protocol, Protocol::V4);
    }

    #[test]
    fn who_asks_otherwise_is_told_what_to_do() {
        for (at, value, told) in [
            (0, "SPDY/3.1", "use kubectl 1.31 or later"),
            (0, "h2c", "Upgrade request required"),
            (1, "close", "Upgrade request required"),
            (2, "8", "only version 13"),
            (3, "short", "must be 16 bytes in base64"),
            (4, "channel.k8s.io", "none of [channel.k8s.io] is spoken here"),
        ] {
            let mut asked = GOOD;
            asked[at].1 = value;
            let fault = agree(&headers(&asked)).unwrap_err();
            assert_eq!(fault.code, 400);
            assert!(fault.message.contains(told), "{}", fault.message);
        }
        assert_eq!(
            agree(&HeaderMap::new()).unwrap_err().message,
            "Upgrade request required"
        );
    }
}
