//! Logs of a pod, as far as the API server alone can answer: which container is meant, and that a pod without a node has
//! none.

use serde_json::Value;

use crate::fault::{Fault, FieldError, Path, Subject};
use crate::registry::ask::Target;
use crate::registry::{Registry, object};

/// What a request for logs asks for.
#[derive(Debug, Default)]
pub(crate) struct LogOptions {
    pub(crate) container: String,
    /// Numbers by their parameter's name.
    pub(crate) numbers: Vec<(&'static str, i64)>,
}

impl Registry {
    /// GET of `pods/NAME/log` for a pod that runs nowhere: nothing was said.
    pub(crate) fn log(&self, target: &Target, options: &LogOptions) -> Result<(), Fault> {
        let pods = Target {
            subresource: None,
            ..target.clone()
        };
        let Some((_, pod)) = self.live(&pods, &pods.key())? else {
            return Err(target.not_found());
        };
        check_numbers(target, options)?;
        let names = |field: &str| -> Vec<String> {
            object::at(&pod, field)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|container| container.get("name")?.as_str().map(str::to_owned))
                .collect()
        };
        let (containers, first) = (names("spec.containers"), names("spec.initContainers"));
        if options.container.is_empty() {
            if containers.len() != 1 || !first.is_empty() {
                let also = if first.is_empty() {
                    String::new()
                } else {
                    format!(" or one of the init containers: [{}]", first.join(" "))
                };
                return Err(Fault::bad_request(format!(
                    "a container name must be specified for pod {}, choose one of: [{}]{also}",
                    target.name,
                    containers.join(" ")
                )));
            }
        } else if !containers.iter().chain(&first).any(|name| *name == options.container) {
            return Err(Fault::bad_request(format!(
                "container {} is not valid for pod {}",
                options.container, target.name
            )));
        }
        let node = object::at(&pod, "spec.nodeName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if node.is_empty() {
            return Ok(());
        }
        Err(Fault::new(
            500,
            "",
            format!(
                "pod {} is on node {node}, which this cluster does not run: it has no logs of it",
                target.name
            ),
        ))
    }
}

fn check_numbers(target: &Target, options: &LogOptions) -> Result<(), Fault> {
    let errors: Vec<FieldError> = options
        .numbers
        .iter()
        .filter_map(|(name, number)| {
            let least = i64::from(*name == "sinceSeconds" || *name == "limitBytes");
            let why = if least == 0 {
                "must be greater than or equal to 0"
            } else {
                "must be greater than 0"
            };
            (*number < least).then(|| FieldError::invalid(&Path::new(*name), *number, why))
        })
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    let subject = Subject {
        group: String::new(),
        kind: "PodLogOptions".to_owned(),
    };
    Err(Fault::invalid(&subject, &target.name, &errors))
}
