//! A WebSocket by hand, as careful or careless as a test wants it.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::World;

#[derive(Debug)]
pub struct Socket {
    stream: TlsStream<TcpStream>,
    /// The answer's head.
    pub head: String,
}

fn line(world: &World, key: &str) -> String {
    let kubeconfig = std::fs::read_to_string(world.listening.kubeconfig_file()).unwrap();
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(key));
    line.unwrap().trim_matches('"').to_owned()
}

impl Socket {
    /// Asks for a command, and is answered.
    pub async fn exec(world: &World, protocol: &str, query: &str) -> Self {
        let pem = base64::Engine::decode(
            &base64::prelude::BASE64_STANDARD,
            line(world, "certificate-authority-data: "),
        );
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(&pem.unwrap()).unwrap())
            .unwrap();
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(world.listening.address()).await.unwrap();
        let name = ServerName::try_from("kubernetes.default.svc").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        let request = format!(
            "GET /api/v1/namespaces/default/pods/p/exec?{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n",
            line(world, "token: ")
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        Self { stream, head }
    }

    /// A frame whose first byte is as given, masked.
    pub async fn send(&mut self, first: u8, payload: &[u8]) {
        let mut bytes = vec![first];
        match payload.len() {
            short @ 0..126 => bytes.push(0x80 | u8::try_from(short).unwrap()),
            long => {
                bytes.push(0x80 | 126);
                bytes.extend_from_slice(&u16::try_from(long).unwrap().to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        bytes.extend_from_slice(&mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.send_raw(&bytes).await;
    }

    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next frame: opcode and payload. Ours are never masked or in pieces.
    pub async fn next(&mut self) -> (u8, Vec<u8>) {
        let first = self.stream.read_u8().await.unwrap();
        assert_eq!(first & 0xf0, 0x80);
        let length = match self.stream.read_u8().await.unwrap() {
            126 => u64::from(self.stream.read_u16().await.unwrap()),
            127 => self.stream.read_u64().await.unwrap(),
            short => u64::from(short),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).await.unwrap();
        (first & 0x0f, payload)
    }

    /// The next message of a channel.
    pub async fn message(&mut self) -> (u8, Vec<u8>) {
        let (opcode, mut payload) = self.next().await;
        assert_eq!(opcode, 2, "{payload:?}");
        let channel = payload.remove(0);
        (channel, payload)
    }

    /// The code of the frame with which the server ends the connection.
    pub async fn closed(&mut self) -> u16 {
        let (opcode, payload) = self.next().await;
        assert_eq!(opcode, 8, "{payload:?}");
        u16::from_be_bytes([payload[0], payload[1]])
    }

    /// The same, whatever comes before it.
    pub async fn closed_at_last(&mut self) -> u16 {
        loop {
            let (opcode, payload) = self.next().await;
            if opcode == 8 {
                return u16::from_be_bytes([payload[0], payload[1]]);
            }
        }
    }
}
