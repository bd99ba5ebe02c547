//! Which kubeconfig, and what is wrong with it. No sentence made here holds anything a kubeconfig keeps secret.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};

use crate::Failed;

/// A cluster, and how we came to it.
#[derive(Debug)]
pub(crate) struct Located {
    /// How to reach it, and as whom.
    pub(crate) config: kube::Config,
    /// Where that was found, for sentences: `kubeconfig /home/me/.kube/config, context prod`.
    pub(crate) source: String,
    /// As whom, for sentences.
    pub(crate) user: String,
}

/// Looks at `--kubeconfig`, `$KUBECONFIG`, `~/.kube/config`, and the pod's service account, in this order.
pub(crate) async fn locate(file: Option<&Path>, context: Option<&str>) -> Result<Located, Failed> {
    let files = match file {
        Some(file) => vec![file.to_owned()],
        None => default_files(),
    };
    if files.is_empty() {
        return in_cluster();
    }
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let source = format!("kubeconfig {}", names.join(":"));
    let mut kubeconfig = Kubeconfig::default();
    for file in &files {
        let next = Kubeconfig::read_from(file).map_err(|problem| unreadable(file, &problem))?;
        kubeconfig = kubeconfig
            .merge(next)
            .map_err(|problem| format!("{source}: {problem}"))?;
    }
    choose(kubeconfig, &source, context).await
}

/// The files that kubectl would take. Of several in `$KUBECONFIG`, those that do not exist are left out.
fn default_files() -> Vec<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        let all: Vec<PathBuf> = std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        let there: Vec<PathBuf> = all.iter().filter(|path| path.exists()).cloned().collect();
        // All of them missing is a mistake worth naming.
        return if there.is_empty() { all } else { there };
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    home.map(|home| home.join(".kube/config"))
        .filter(|path| path.exists())
        .into_iter()
        .collect()
}

fn in_cluster() -> Result<Located, Failed> {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        return Err(
            "no cluster found: there is no ~/.kube/config, and this is no pod; name a kubeconfig with --kubeconfig \
                    FILE or $KUBECONFIG"
                .into(),
        );
    }
    let config = kube::Config::incluster().map_err(|problem| {
        format!(
            "the pod's service account cannot be used: {problem}; set automountServiceAccountToken: true on the pod"
        )
    })?;
    Ok(Located {
        config,
        source: "the pod's service account".to_owned(),
        user: "the pod's service account".to_owned(),
    })
}

/// The context's cluster and user.
async fn choose(kubeconfig: Kubeconfig, source: &str, context: Option<&str>) -> Result<Located, Failed> {
    let contexts: Vec<&str> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
    let known = match contexts.as_slice() {
        [] => "it has no contexts".to_owned(),
        some => format!("it has: {}", some.join(", ")),
    };
    let chosen = context.or(kubeconfig.current_context.as_deref().filter(|name| !name.is_empty()));
    let Some(name) = chosen.map(str::to_owned) else {
        return Err(format!(
            "{source} sets no current-context; choose one with --context NAME or `kubectl config use-context NAME` ({known})"
        )
        .into());
    };
    let entry = kubeconfig
        .contexts
        .iter()
        .find(|c| c.name == name)
        .and_then(|c| c.context.clone());
    let Some(entry) = entry else {
        return Err(format!("{source} has no context {name:?}; {known}").into());
    };
    let user = entry.user.clone().unwrap_or_default();
    // kube takes a missing user for nobody, and the server's 401 would not say why.
    if !user.is_empty() && !kubeconfig.auth_infos.iter().any(|u| u.name == user) {
        return Err(
            format!("{source}: context {name} names user {user:?}, which is not among its users; add it").into(),
        );
    }
    let source = format!("{source}, context {name}");
    let options = KubeConfigOptions {
        context: Some(name),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|problem| format!("{source}: {}", unusable(&entry.cluster, &user, &problem)))?;
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(format!(
            "{source}: certificate-authority of cluster {} holds no certificate; it must be PEM (BEGIN CERTIFICATE)",
            entry.cluster
        )
        .into());
    }
    let user = if user.is_empty() { "(none)".to_owned() } else { user };
    Ok(Located { config, source, user })
}

/// Why a file could not be read.
fn unreadable(file: &Path, problem: &KubeconfigError) -> String {
    let name = file.display();
    match problem {
        KubeconfigError::ReadConfig(io, _) => match io.kind() {
            ErrorKind::NotFound => {
                format!("kubeconfig {name} does not exist; name another with --kubeconfig FILE or $KUBECONFIG")
            }
            ErrorKind::PermissionDenied => {
                format!("kubeconfig {name} may not be read by this user; check its mode and owner")
            }
            ErrorKind::IsADirectory => format!("kubeconfig {name} is a folder; name the file in it"),
            ErrorKind::InvalidData => format!("kubeconfig {name} is no text (UTF-8); is it the right file?"),
            _ => format!("kubeconfig {name} cannot be read: {io}"),
        },
        // The parser quotes the lines around the fault, and may quote the value: a token, perhaps. Only the place is told.
        KubeconfigError::Parse(fault) => {
            let place = fault.without_snippet().location().map_or_else(String::new, |at| {
                format!(" at line {}, column {}", at.line(), at.column())
            });
            format!(
                "kubeconfig {name} is no valid kubeconfig{place}: the YAML is broken there, or a field has the wrong type; correct it"
            )
        }
        other => format!("kubeconfig {name}: {other}"),
    }
}

/// Why a context's cluster and user do not make a configuration.
fn unusable(cluster: &str, user: &str, problem: &KubeconfigError) -> String {
    let data = |what: &str, problem: &LoadDataError| match problem {
        LoadDataError::ReadFile(io, path) => format!("{what} {} cannot be read: {io}", path.display()),
        LoadDataError::DecodeBase64(_) => format!("{what}-data is no base64; correct it"),
        LoadDataError::NoBase64DataOrFile => format!("{what} is empty; set it"),
    };
    match problem {
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("the context names cluster {name:?}, which is not among its clusters; add it")
        }
        KubeconfigError::MissingClusterUrl => {
            format!("cluster {cluster} has no server; set it to the API server's URL")
        }
        KubeconfigError::ParseClusterUrl(e) => format!("server of cluster {cluster} is no URL ({e}); correct it"),
        KubeconfigError::ParseProxyUrl(e) => format!("proxy-url of cluster {cluster} is no URL ({e}); correct it"),
        KubeconfigError::LoadCertificateAuthority(e) => {
            format!("cluster {cluster}: {}", data("certificate-authority", e))
        }
        KubeconfigError::ParseCertificates(e) => {
            format!("certificate-authority of cluster {cluster} is no PEM ({e}); correct it")
        }
        KubeconfigError::LoadClientCertificate(e) => format!("user {user}: {}", data("client-certificate", e)),
        KubeconfigError::LoadClientKey(e) => format!("user {user}: {}", data("client-key", e)),
        other => other.to_string(),
    }
}
