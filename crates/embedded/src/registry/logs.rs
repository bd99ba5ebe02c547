//! Logs of a pod and commands in it, as far as the API server alone can answer: which container is meant, where it is, and
//! that a pod without a node has neither. The rest is its node's ([`crate::node::door`]).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::fault::{Fault, FieldError, Path, Subject};
use crate::node::logs::{LogQuery, Source};
use crate::registry::ask::Target;
use crate::registry::{Registry, object};

/// What a request for logs asks for, unchecked.
#[derive(Debug, Default)]
pub(crate) struct LogOptions {
    pub(crate) container: String,
    /// Numbers by their parameter's name.
    pub(crate) numbers: Vec<(&'static str, i64)>,
    pub(crate) since_time: Option<Timestamp>,
    /// Empty: both streams.
    pub(crate) stream: String,
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    pub(crate) timestamps: bool,
}

/// A container of a pod that is on a node.
#[derive(Debug)]
pub(crate) struct PodPlace {
    pub(crate) pod: Pod,
    pub(crate) name: String,
    pub(crate) container: String,
    pub(crate) node: String,
}

impl Registry {
    /// What GET of `pods/NAME/log` is about. `None`: a pod that runs nowhere yet.
    pub(crate) fn log(&self, target: &Target, options: &LogOptions) -> Result<(Option<PodPlace>, LogQuery), Fault> {
        let pod = self.pod(target)?;
        let query = self.log_query(target, options)?;
        let container = container(target, &pod, &options.container)?;
        Ok((place(target, pod, container)?, query))
    }

    /// What a command at `pods/NAME/exec` is about.
    pub(crate) fn exec_place(&self, target: &Target, asked: &str) -> Result<PodPlace, Fault> {
        let pod = self.pod(target)?;
        let container = container(target, &pod, asked)?;
        place(target, pod, container)?
            .ok_or_else(|| Fault::bad_request(format!("pod {} does not have a host assigned", target.name)))
    }

    /// The pod that a subresource is of.
    pub(crate) fn pod(&self, target: &Target) -> Result<Value, Fault> {
        let pods = Target {
            subresource: None,
            ..target.clone()
        };
        match self.live(&pods, &pods.key())? {
            Some((_, pod)) => Ok(pod),
            None => Err(target.not_found()),
        }
    }

    fn log_query(&self, target: &Target, options: &LogOptions) -> Result<LogQuery, Fault> {
        let number = |name: &str| {
            let found = options.numbers.iter().find(|(known, _)| *known == name);
            found.map(|(_, number)| *number)
        };
        let mut errors = wrong_numbers(options);
        let source = match options.stream.as_str() {
            "" | "All" => None,
            "Stdout" => Some(Source::Stdout),
            "Stderr" => Some(Source::Stderr),
            other => {
                let all = ["All", "Stderr", "Stdout"];
                errors.push(FieldError::not_supported(&Path::new("stream"), other, &all));
                None
            }
        };
        if source.is_some() && number("tailLines").is_some() {
            let why = "`tailLines` and specific `stream` are mutually exclusive for now";
            errors.push(FieldError::forbidden(&Path::new("tailLines"), why));
        }
        if options.since_time.is_some() && number("sinceSeconds").is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden(&Path::new("sinceTime"), why));
        }
        if !errors.is_empty() {
            let subject = Subject {
                group: String::new(),
                kind: "PodLogOptions".to_owned(),
            };
            return Err(Fault::invalid(&subject, &target.name, &errors));
        }
        let unsigned = |name: &str| number(name).and_then(|number| u64::try_from(number).ok());
        let ago = number("sinceSeconds").map(SignedDuration::from_secs);
        // Longer ago than time itself is always.
        let since = ago.and_then(|ago| self.clock.now().checked_sub(ago).ok());
        Ok(LogQuery {
            follow: options.follow,
            previous: options.previous,
            timestamps: options.timestamps,
            since: options.since_time.or(since),
            tail_lines: unsigned("tailLines"),
            limit_bytes: unsigned("limitBytes"),
            source,
        })
    }
}

/// The container that was asked for, or the only one there is.
fn container(target: &Target, pod: &Value, asked: &str) -> Result<String, Fault> {
    let names = |field: &str| -> Vec<String> {
        object::at(pod, field)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|container| container.get("name")?.as_str().map(str::to_owned))
            .collect()
    };
    let (containers, first) = (names("spec.containers"), names("spec.initContainers"));
    if !asked.is_empty() {
        if containers.iter().chain(&first).any(|name| name == asked) {
            return Ok(asked.to_owned());
        }
        return Err(Fault::bad_request(format!(
            "container {asked} is not valid for pod {}",
            target.name
        )));
    }
    if let ([only], []) = (containers.as_slice(), first.as_slice()) {
        return Ok(only.clone());
    }
    let also = if first.is_empty() {
        String::new()
    } else {
        format!(" or one of the init containers: [{}]", first.join(" "))
    };
    Err(Fault::bad_request(format!(
        "a container name must be specified for pod {}, choose one of: [{}]{also}",
        target.name,
        containers.join(" ")
    )))
}

/// `None`: the pod is on no node.
fn place(target: &Target, pod: Value, container: String) -> Result<Option<PodPlace>, Fault> {
    let node = object::at(&pod, "spec.nodeName").and_then(Value::as_str);
    let Some(node) = node.filter(|node| !node.is_empty()).map(str::to_owned) else {
        return Ok(None);
    };
    let pod = serde_json::from_value(pod)
        .map_err(|why| Fault::internal(format!("pod {} cannot be read: {why}", target.name)))?;
    Ok(Some(PodPlace {
        pod,
        name: target.name.clone(),
        container,
        node,
    }))
}

fn wrong_numbers(options: &LogOptions) -> Vec<FieldError> {
    let numbers = options.numbers.iter();
    numbers
        .filter_map(|(name, number)| {
            let least = i64::from(*name == "sinceSeconds" || *name == "limitBytes");
            let why = if least == 0 {
                "must be greater than or equal to 0"
            } else {
                "must be greater than 0"
            };
            (*number < least).then(|| FieldError::invalid(&Path::new(*name), *number, why))
        })
        .collect()
}
