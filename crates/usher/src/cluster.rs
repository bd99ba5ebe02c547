//! Talking to the cluster: one client, every call with a time limit, every failure as one sentence.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::api::{Api, DynamicObject};
use kube::discovery::ApiResource;
use usher_operator::client::ClientError;

use crate::Failed;
use crate::kubeconfig::{self, Located};

/// Longest wait for one answer. A server that takes longer is as good as gone to somebody who waits at a terminal.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// Where the API server is. Without flags: `$KUBECONFIG`, `~/.kube/config`, or the pod's own service account.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, value_name = "FILE", global = true, value_hint = clap::ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) context: Option<String>,
}

impl ClusterArgs {
    /// The configuration, or a sentence that names the file and what is wrong with it.
    pub(crate) async fn locate(&self) -> Result<Located, Failed> {
        kubeconfig::locate(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }

    /// A client. Nothing is sent yet.
    pub(crate) async fn connect(&self, role: &'static str) -> Result<Cluster, Failed> {
        let mut located = self.locate().await?;
        located.config.connect_timeout = Some(ANSWER);
        let client =
            usher_operator::client::reading(&located.config, role).map_err(|problem| no_client(&located, &problem))?;
        Ok(Cluster {
            client,
            located,
            answer: ANSWER,
        })
    }
}

/// A client could not be made.
pub(crate) fn no_client(located: &Located, problem: &ClientError) -> String {
    match &located.config.auth_info.exec {
        // What a credential plugin printed may be a credential: it is not repeated.
        Some(exec) => format!(
            "the credential plugin {:?} of user {} in {} failed; run it by hand to see why",
            exec.command.as_deref().unwrap_or_default(),
            located.user,
            located.source
        ),
        None => format!("{}: {problem}", located.source),
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub(crate) struct Refusal {
    /// The HTTP code, if the server answered at all.
    code: Option<u16>,
    sentence: String,
}

impl Refusal {
    /// Whether the server answered with this code.
    pub(crate) fn is(&self, code: u16) -> bool {
        self.code == Some(code)
    }
}

/// A connection to one cluster.
pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    pub(crate) located: Located,
    /// Longest wait for one answer.
    pub(crate) answer: Duration,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Where it is; without a password that somebody may have put into the URL.
    pub(crate) fn server(&self) -> String {
        let url = &self.located.config.cluster_url;
        let port = url.port_u16().map_or_else(String::new, |port| format!(":{port}"));
        let path = url.path().trim_end_matches('/');
        format!(
            "{}://{}{port}{path}",
            url.scheme_str().unwrap_or("https"),
            url.host().unwrap_or_default()
        )
    }

    /// The API of one type, in one namespace or in all.
    pub(crate) fn api(&self, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, kind),
            None => Api::all_with(self.client.clone(), kind),
        }
    }

    /// One call. `doing` completes "cannot …": `read SubnetClaim team-a/web`.
    pub(crate) async fn ask<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Refusal> {
        match tokio::time::timeout(self.answer, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(problem)) => Err(self.refusal(doing, &problem)),
            Err(_) => Err(Refusal {
                code: None,
                sentence: format!(
                    "cannot {doing}: no answer from {} ({}) within {} s; is it running, and is the way to it open?",
                    self.server(),
                    self.located.source,
                    self.answer.as_secs()
                ),
            }),
        }
    }

    /// Like [`Cluster::ask`], where "there is none" is an answer.
    pub(crate) async fn find<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Option<T>, Refusal> {
        match self.ask(doing, call).await {
            Ok(answer) => Ok(Some(answer)),
            Err(refusal) if refusal.is(404) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    fn refusal(&self, doing: &str, problem: &kube::Error) -> Refusal {
        let (server, Located { source, user, .. }) = (self.server(), &self.located);
        let kube::Error::Api(status) = problem else {
            return Refusal {
                code: None,
                sentence: format!("cannot {doing}: {}", self.unreachable(problem)),
            };
        };
        let message = one_line(&status.message);
        let why = match status.code {
            401 => format!(
                "the API server at {server} does not accept the credentials of user {user} (401); renew them in \
                 {source}, or choose another context with --context"
            ),
            403 => format!("user {user} of {source} lacks the right (403): {message}; ask an administrator for it"),
            404 => format!("{server} has no such thing (404): {message}"),
            409 => format!("it changed meanwhile (409): {message}; try again"),
            400 | 405 | 413 | 415 | 422 => format!("refused as invalid ({}): {message}", status.code),
            code => format!("the API server at {server} answered {code}: {message}; try again later"),
        };
        Refusal {
            code: Some(status.code),
            sentence: format!("cannot {doing}: {why}"),
        }
    }

    /// No answer was had.
    fn unreachable(&self, problem: &kube::Error) -> String {
        let (server, Located { source, user, .. }) = (self.server(), &self.located);
        let cause = root_cause(problem);
        if matches!(problem, kube::Error::Auth(_)) || is_from::<kube::client::AuthError>(problem) {
            return format!(
                "the credentials of user {user} in {source} cannot be had; run its credential plugin by hand"
            );
        }
        if cause.contains("certificate") {
            return format!(
                "{server} shows a certificate that certificate-authority in {source} does not vouch for ({cause}); \
                 correct the one or the other"
            );
        }
        format!("{server} ({source}) cannot be reached: {cause}; is the API server running?")
    }
}

/// Whether one of the causes is of this type.
fn is_from<E: Error + 'static>(problem: &kube::Error) -> bool {
    causes(problem).any(|cause| cause.is::<E>())
}

/// What it all began with: the layers above say "client error (Connect)" and the like.
fn root_cause(problem: &(dyn Error + 'static)) -> String {
    one_line(&causes(problem).last().map(ToString::to_string).unwrap_or_default())
}

fn causes<'e>(problem: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(problem), |&problem| problem.source())
}

/// The server's words in one line, and not a page of them.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// For clap: a namespace, or any other name that Kubernetes takes as a DNS label.
pub(crate) fn dns_label(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > 63 || !text.chars().all(fits) || text.starts_with('-') || text.ends_with('-') {
        return Err("must be 1 to 63 of a-z, 0-9 and -, and begin and end with a letter or digit".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_words_stay_short_and_on_one_line() {
        assert_eq!(one_line(" a\n\tb  c "), "a b c");
        assert_eq!(one_line(&"ä".repeat(600)).chars().count(), 501);
    }

    #[test]
    fn namespaces_are_dns_labels() {
        for good in ["a", "usher-system", "0", &"x".repeat(63)] {
            assert_eq!(dns_label(good).as_deref(), Ok(good));
        }
        for bad in ["", "A", "a.b", "-a", "a-", "a/b", "ä", &"x".repeat(64)] {
            assert!(dns_label(bad).is_err(), "{bad}");
        }
    }
}
