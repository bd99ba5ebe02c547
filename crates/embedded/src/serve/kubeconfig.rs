//! How kubectl finds the cluster: a kubeconfig of our own, or the context `usher` in somebody's.

use std::fmt;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// What cluster, user and context are called in a kubeconfig.
pub const CONTEXT: &str = "usher";

/// Where the cluster is, whom to believe, and as whom to ask. Never shown: it holds the token.
#[derive(Clone)]
pub struct Access {
    url: String,
    /// PEM.
    authority: String,
    token: String,
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Access")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Access {
    pub(super) fn new(address: SocketAddr, authority: &str, token: &str) -> Self {
        Self {
            url: format!("https://{address}"),
            authority: authority.to_owned(),
            token: token.to_owned(),
        }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig with nothing but this.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let [cluster, user, context] = self.entries(0);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {CONTEXT}\nclusters:\n{cluster}users:\n{user}contexts:\n{context}"
        )
    }

    /// The items of `clusters`, `users` and `contexts`, indented by so much.
    fn entries(&self, indent: usize) -> [String; 3] {
        let Self { url, token, .. } = self;
        let authority = BASE64_STANDARD.encode(&self.authority);
        let margin = " ".repeat(indent);
        [
            format!(
                "{margin}- name: {CONTEXT}\n{margin}  cluster:\n{margin}    server: {url}\n\
                 {margin}    certificate-authority-data: {authority}\n"
            ),
            format!("{margin}- name: {CONTEXT}\n{margin}  user:\n{margin}    token: \"{token}\"\n"),
            format!(
                "{margin}- name: {CONTEXT}\n{margin}  context:\n{margin}    cluster: {CONTEXT}\n{margin}    user: {CONTEXT}\n"
            ),
        ]
    }
}
