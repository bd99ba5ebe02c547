//! Which cluster: flags and kubeconfig to a client configuration.

use std::path::PathBuf;

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::Failed;

/// Where the API server is. Without flags: `$KUBECONFIG`, `~/.kube/config`, or the pod's own service account.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) context: Option<String>,
}

impl ClusterArgs {
    /// The configuration, or a sentence that names the file and what is wrong with it.
    pub(crate) async fn config(&self) -> Result<kube::Config, Failed> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let named = self
            .kubeconfig
            .clone()
            .or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from));
        if self.kubeconfig.is_none() && self.context.is_none() {
            return kube::Config::infer().await.map_err(|e| {
                format!("no cluster found: {e}; name a kubeconfig with --kubeconfig or $KUBECONFIG").into()
            });
        }
        let file = named.map_or_else(|| "~/.kube/config".to_owned(), |path| path.display().to_string());
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let kubeconfig = kubeconfig.map_err(|e| format!("kubeconfig {file} cannot be read: {}", chain(&e)))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.map_err(|e| format!("kubeconfig {file} names no usable cluster: {}", chain(&e)).into())
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
