//! `usher up --examples`: one example of every kind that this machine can run, applied as a user would, and what becomes of
//! each until it is Ready.
//!
//! The manifests are those of `examples/`, built in, so that an installed program has them too. Applying them again changes
//! nothing: a second start finds everything as it was.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kube::api::{DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, TypeMeta};
use kube::discovery::ApiResource;
use serde_json::Value;
use tokio::time::Instant;

use crate::Failed;
use crate::cluster::Cluster;
use crate::install::apply::LOOK;
use crate::install::objects::Object;
use crate::output;

/// Whoever applies twice is the same.
const MANAGER: &str = "usher-up";
/// An example that is not Ready by then will hardly be: a pod starts within a second.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is shown of a kind.
struct Example {
    name: &'static str,
    /// Completes "shows …".
    shows: &'static str,
    files: &'static [&'static str],
    /// Whether pods must run for it.
    needs_pods: bool,
    /// Where to look next.
    look: &'static str,
}

const EXAMPLES: [Example; 2] = [
    Example {
        name: "subnets",
        shows: "a pool of addresses and four claims on it",
        files: &[
            include_str!("../../../../examples/subnets/pool.yaml"),
            include_str!("../../../../examples/subnets/claims.yaml"),
        ],
        needs_pods: false,
        look: "kubectl get subnetpools,subnetclaims,subnets",
    },
    Example {
        name: "workload",
        shows: "a Deployment of three pods",
        files: &[include_str!("../../../../examples/workload/deployment.yaml")],
        needs_pods: true,
        look: "kubectl logs -l app=greeter --prefix",
    },
];

/// How many pods of a set are Ready now: what the set itself says may be of an earlier start. `None`: it has no pods.
async fn pods_ready(cluster: &Cluster, object: &DynamicObject) -> Result<Option<i64>, Failed> {
    let labels = object
        .data
        .pointer("/spec/selector/matchLabels")
        .and_then(Value::as_object);
    let Some(labels) = labels else { return Ok(None) };
    let words = labels
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let selector = words.collect::<Vec<_>>().join(",");
    let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let api = cluster.api(&pods, object.metadata.namespace.as_deref());
    let params = ListParams::default().labels(&selector);
    let list = cluster
        .ask(&format!("list pods with {selector}"), api.list(&params))
        .await?;
    let is_ready = |pod: &&DynamicObject| {
        let conditions = pod.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|condition| {
            condition.get("type") == Some(&"Ready".into()) && condition.get("status") == Some(&"True".into())
        })
    };
    let count = list
        .items
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(i64::try_from(count.filter(is_ready).count()).ok())
}

/// What one object still lacks; `None`: nothing. `pods`: how many of its pods are Ready, if it has any.
fn missing(object: &DynamicObject, pods: Option<i64>) -> Option<String> {
    let data = &object.data;
    let number = |path: &str| data.pointer(path).and_then(Value::as_i64);
    let kind = object
        .types
        .as_ref()
        .map(|types| types.kind.as_str())
        .unwrap_or_default();
    if matches!(kind, "Deployment" | "StatefulSet") {
        let seen = number("/status/observedGeneration").unwrap_or_default();
        let wanted = number("/spec/replicas").unwrap_or(1);
        let field = |name: &str| number(&format!("/status/{name}")).unwrap_or_default();
        let ready = field("readyReplicas").min(field("updatedReplicas"));
        let ready = ready.min(pods.unwrap_or_default());
        if seen < object.metadata.generation.unwrap_or_default() || ready < wanted {
            return Some(format!("{ready} of {wanted} pods ready"));
        }
        return None;
    }
    let conditions = data.pointer("/status/conditions").and_then(Value::as_array)?;
    let ready = conditions
        .iter()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some("Ready"))?;
    let text = |name: &str| ready.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("status") != "True").then(|| match text("message") {
        message if message.is_empty() => text("reason"),
        message => message,
    })
}

/// Kinds whose objects say by a condition whether they are Ready: before there is one they are not.
fn tells(object: &Object) -> bool {
    object.value.pointer("/apiVersion").and_then(Value::as_str) == Some("plexaubnet.io/v1alpha1")
}

fn objects(example: &Example) -> Result<Vec<Object>, Failed> {
    let mut all = Vec::new();
    for file in example.files {
        for document in serde_saphyr::from_multiple::<Value>(file)? {
            all.push(object(document)?);
        }
    }
    Ok(all)
}

/// One document of an example; without a namespace of its own it goes into `default`.
fn object(value: Value) -> Result<Object, Failed> {
    let text = |path: &str| {
        value
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let types = TypeMeta {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
    };
    Ok(Object {
        kind: ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?),
        namespace: Some("default".to_owned()),
        name: text("/metadata/name"),
        value,
    })
}

/// The state of one example, told in one line.
struct Line {
    example: &'static Example,
    objects: Vec<Object>,
    bar: Option<ProgressBar>,
    told: String,
    is_ready: bool,
}

impl Line {
    fn tell(&mut self, what: String) -> Result<(), Failed> {
        if what == self.told {
            return Ok(());
        }
        self.told = what;
        match &self.bar {
            Some(bar) => bar.set_message(self.told.clone()),
            None => output::print(&format!("  {:<10} {}\n", self.example.name, self.told))?,
        }
        Ok(())
    }

    async fn look(&mut self, cluster: &Cluster) -> Result<(), Failed> {
        let mut lacking = BTreeMap::new();
        for object in &self.objects {
            let api = cluster.api(&object.kind, object.namespace.as_deref());
            let live = cluster.ask(&format!("read {object}"), api.get(&object.name)).await?;
            let is_silent = tells(object) && live.data.pointer("/status/conditions").is_none();
            let lack = if is_silent {
                Some("not looked at yet".to_owned())
            } else {
                missing(&live, pods_ready(cluster, &live).await?)
            };
            if let Some(lack) = lack {
                lacking.insert(object.to_string(), lack);
            }
        }
        match lacking.first_key_value() {
            None => {
                self.is_ready = true;
                self.tell(format!("Ready: {}. Look: {}", self.example.shows, self.example.look))?;
                if let Some(bar) = &self.bar {
                    bar.finish();
                }
                Ok(())
            }
            Some((object, lack)) => {
                let more = match lacking.len() - 1 {
                    0 => String::new(),
                    more => format!(", and {more} more"),
                };
                self.tell(format!("waiting for {object}: {lack}{more}"))
            }
        }
    }
}

/// Applies all of them, and tells what becomes of them until every one is Ready.
///
/// `has_pods`: whether a node of this cluster runs pods; `found`: done when pods of an earlier start say what became of them. An error names the examples that did not become Ready, and what
/// they lack.
pub(super) async fn show(cluster: &Cluster, has_pods: bool, found: impl Future<Output = ()>) -> Result<(), Failed> {
    let started = Instant::now();
    let bars = std::io::stdout().is_terminal().then(MultiProgress::new);
    let mut lines = Vec::new();
    for example in &EXAMPLES {
        if example.needs_pods && !has_pods {
            output::print(&format!(
                "  {:<10} left out: no node of this cluster runs pods (--nodes)\n",
                example.name
            ))?;
            continue;
        }
        let bar = bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template("  {prefix:<10} {spinner} {msg}");
            let bar = bars.add(ProgressBar::new_spinner().with_prefix(example.name));
            bar.enable_steady_tick(LOOK);
            match style {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        lines.push(Line {
            example,
            objects: objects(example)?,
            bar,
            told: String::new(),
            is_ready: false,
        });
    }
    for line in &mut lines {
        line.tell("applying".to_owned())?;
        for object in &line.objects {
            let api = cluster.api(&object.kind, object.namespace.as_deref());
            let params = PatchParams::apply(MANAGER).force();
            let patch = Patch::Apply(&object.value);
            let apply = api.patch(&object.name, &params, &patch);
            cluster.ask(&format!("apply {object}"), apply).await?;
        }
    }
    // One that nobody can tell anything of is told below.
    let _ = tokio::time::timeout(PATIENCE, found).await;
    loop {
        for line in lines.iter_mut().filter(|line| !line.is_ready) {
            line.look(cluster).await?;
        }
        let late: Vec<&Line> = lines.iter().filter(|line| !line.is_ready).collect();
        if late.is_empty() {
            let seconds = started.elapsed().as_secs_f64();
            return output::print(&format!("All examples are Ready, after {seconds:.1} s.\n"));
        }
        if started.elapsed() >= PATIENCE {
            let late: Vec<String> = late
                .iter()
                .map(|line| format!("{} ({})", line.example.name, line.told))
                .collect();
            return Err(format!(
                "not Ready after {} s: {}; `kubectl describe` on these objects and their pods says why",
                PATIENCE.as_secs(),
                late.join(", ")
            )
            .into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_reads_and_names_its_objects() {
        for example in &EXAMPLES {
            let objects = objects(example).unwrap();
            assert!(!objects.is_empty(), "{}", example.name);
            for object in objects {
                assert_eq!(object.namespace.as_deref(), Some("default"), "{object}");
            }
        }
    }

    #[test]
    fn what_an_object_lacks_is_said_in_its_own_words() {
        let object = |value: Value| serde_json::from_value::<DynamicObject>(value).unwrap();
        let rolling = serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "generation": 2},
            "spec": {"replicas": 3}, "status": {"observedGeneration": 2, "readyReplicas": 3, "updatedReplicas": 1}});
        assert_eq!(
            missing(&object(rolling.clone()), Some(3)).as_deref(),
            Some("1 of 3 pods ready")
        );
        let mut done = rolling.clone();
        done["status"]["updatedReplicas"] = 3.into();
        assert_eq!(missing(&object(done.clone()), Some(3)), None);
        assert_eq!(
            missing(&object(done.clone()), Some(2)).as_deref(),
            Some("2 of 3 pods ready"),
            "what it says may be of an earlier start"
        );
        done["metadata"]["generation"] = 3.into();
        assert_eq!(
            missing(&object(done), Some(3)).as_deref(),
            Some("3 of 3 pods ready"),
            "an older generation's status says nothing of this one"
        );
        let claim = |status: &str| {
            serde_json::json!({"apiVersion": "plexaubnet.io/v1alpha1", "kind": "SubnetClaim", "metadata": {"name": "a"},
                "status": {"conditions": [{"type": "Ready", "status": status, "reason": "Full", "message": "no free /28"}]}})
        };
        assert_eq!(missing(&object(claim("False")), None).as_deref(), Some("no free /28"));
        assert_eq!(missing(&object(claim("True")), None), None);
    }
}
