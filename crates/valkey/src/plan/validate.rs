//! What a spec asks for that cannot be, beyond what schema and CEL refuse (5.8, 5.10, section 8): a sentence that names the
//! field and the way out, and what it takes to go on.

use usher_engine::{Finding, Stance, Tell};

use crate::api::CauseClass;
use crate::objects::conf;
use crate::records::ClusterRecord;
use crate::seen::{Answer, Observation, PasswordSeen};
use crate::words::ServerVersion;

/// Why a cluster cannot be as its spec says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// What it takes to go on.
    pub class: CauseClass,
    /// One CamelCase word.
    pub reason: &'static str,
    /// A sentence that names the field or object, and the fix.
    pub message: String,
}

/// The reason of what a change of the spec mends.
pub const VALIDATION_FAILED: &str = "ValidationFailed";
/// The reason of a Secret that is not there.
pub const MISSING_SECRET: &str = "MissingSecret";
/// The reason of an object of somebody else's under a name of ours.
pub const FOREIGN_OBJECT: &str = "ForeignObject";

/// The oldest server that is supported.
const OLDEST: ServerVersion = ServerVersion {
    major: 7,
    minor: 2,
    patch: 0,
};
/// The first that is not any more.
const BEYOND: ServerVersion = ServerVersion {
    major: 10,
    minor: 0,
    patch: 0,
};

/// The first thing that is wrong, if any is.
pub fn validate(cluster: &ClusterRecord, seen: &Observation) -> Option<Invalid> {
    let problem = sizes(cluster)
        .or_else(|| blocks(cluster, seen))
        .or_else(|| config(cluster))
        .or_else(|| resources(cluster))
        .or_else(|| version(cluster, seen));
    let invalid = problem.map(|message| Invalid {
        class: CauseClass::Validation,
        reason: VALIDATION_FAILED,
        message,
    });
    invalid.or_else(|| foreign(cluster, seen)).or_else(|| missing(seen))
}

/// The schema refuses these; a CRD that somebody loosened does not.
fn sizes(cluster: &ClusterRecord) -> Option<String> {
    let (masters, replicas) = (cluster.spec.masters, cluster.spec.replicas_per_master);
    if !(3..=100).contains(&masters) {
        return Some(format!("spec.masters is {masters}: set a number from 3 to 100"));
    }
    if !(0..=5).contains(&replicas) {
        return Some(format!(
            "spec.replicasPerMaster is {replicas}: set a number from 0 to 5"
        ));
    }
    let pods = masters.saturating_mul(1 + replicas);
    (pods > 500).then(|| {
        format!("spec.masters * (1 + spec.replicasPerMaster) is {pods}, and 500 is the most: lower one of the two")
    })
}

fn blocks(cluster: &ClusterRecord, seen: &Observation) -> Option<String> {
    let spec = &cluster.spec;
    let acl = spec.auth.as_ref().is_some_and(|auth| auth.acl.enabled);
    if spec.tls.is_some() {
        Some("spec.tls: this version of Usher runs no encrypted clusters yet: create the cluster without it".into())
    } else if acl {
        Some("spec.auth.acl: this version of Usher knows no users yet: set spec.auth.acl.enabled to false".into())
    } else if seen.rules.require_tls {
        Some("spec.tls is missing, and valkey.requireTls is set: create the cluster with it".into())
    } else if seen.rules.require_auth && spec.auth.is_none() {
        Some("spec.auth is missing, and valkey.requireAuth is set: create the cluster with it".into())
    } else {
        None
    }
}

fn config(cluster: &ClusterRecord) -> Option<String> {
    cluster.spec.config.iter().find_map(|(key, value)| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if key.is_empty() || !key.chars().all(word) {
            return Some(format!(
                "spec.config has the key {key:?}, which is no name of a setting: letters, digits and dashes are"
            ));
        }
        if value.chars().any(char::is_control) {
            return Some(format!(
                "spec.config.{key} has a control character in it (a line break?): write it in one line"
            ));
        }
        let instead = conf::fixed(key)?;
        Some(match instead {
            "" => format!("spec.config.{key} is set by Usher itself: remove it"),
            field => format!("spec.config.{key} follows from {field}: remove it, and set that instead"),
        })
    })
}

fn resources(cluster: &ClusterRecord) -> Option<String> {
    let (requests, limits) = (&cluster.spec.resources.requests, &cluster.spec.resources.limits);
    let pairs = [
        ("cpu", &requests.cpu, &limits.cpu),
        ("memory", &requests.memory, &limits.memory),
    ];
    let exporter = &cluster.spec.metrics_exporter;
    if let Some((name, request, limit)) = pairs.into_iter().find(|(_, request, limit)| exceeds(request, limit)) {
        return Some(format!(
            "spec.resources.requests.{name} is {request}, more than the limit of {limit}: lower the one or raise the other"
        ));
    }
    let pairs = [
        ("cpu", &exporter.resources.cpu_request, &exporter.resources.cpu_limit),
        (
            "memory",
            &exporter.resources.memory_request,
            &exporter.resources.memory_limit,
        ),
    ];
    let over = pairs
        .into_iter()
        .find(|(_, request, limit)| exporter.enabled && exceeds(request, limit));
    over.map(|(name, request, limit)| {
        format!(
            "spec.metricsExporter.resources.{name}Request is {request}, more than {name}Limit, {limit}: lower the one or \
             raise the other"
        )
    })
}

fn exceeds(request: &str, limit: &str) -> bool {
    use crate::objects::compare::quantity;
    matches!((quantity(request), quantity(limit)), (Some(request), Some(limit)) if request > limit)
}

fn version(cluster: &ClusterRecord, seen: &Observation) -> Option<String> {
    let tag = &cluster.spec.image.tag;
    let wanted = conf::version(cluster)?;
    if !(OLDEST..BEYOND).contains(&wanted) {
        return Some(format!(
            "spec.image.tag {tag:?} is Valkey {wanted}; 7.2, 8.x and 9.x are supported: choose one of them"
        ));
    }
    let running = newest(cluster, seen).filter(|running| wanted < *running)?;
    (!cluster.spec.image.allow_downgrade).then(|| {
        format!(
            "spec.image.tag {tag:?} is older than {running}, which servers run (DowngradeBlocked): an older server may be \
             unable to read their data. Set the tag back, or spec.image.allowDowngrade to true"
        )
    })
}

/// The newest version that any server runs, as far as it is known.
fn newest(cluster: &ClusterRecord, seen: &Observation) -> Option<ServerVersion> {
    let said = seen.answers.values().filter_map(|answer| match answer {
        Answer::Says(says) => Some(says.version),
        Answer::Silent { .. } | Answer::Loading { .. } => None,
    });
    said.max()
        .or_else(|| reported(cluster.status.valkey_version.as_deref()?))
}

/// The newest of what a status reports: `9.1.2`, or `9.0.0..9.1.2`.
pub fn reported(versions: &str) -> Option<ServerVersion> {
    versions.split("..").filter_map(ServerVersion::parse).max()
}

fn foreign(cluster: &ClusterRecord, seen: &Observation) -> Option<Invalid> {
    let (kind, name) = seen.objects.foreign.first()?;
    let namespace = cluster.meta.key.namespace();
    Some(Invalid {
        class: CauseClass::Permanent,
        reason: FOREIGN_OBJECT,
        message: format!(
            "{kind} {namespace}/{name} is not this cluster's, and Usher leaves it alone: delete or rename it, or give the \
             cluster another name"
        ),
    })
}

fn missing(seen: &Observation) -> Option<Invalid> {
    match &seen.objects.password {
        PasswordSeen::Missing { secret, problem } => Some(Invalid {
            class: CauseClass::Validation,
            reason: MISSING_SECRET,
            message: format!("MissingSecret {secret}: {problem}. The cluster goes on by itself when it is there"),
        }),
        PasswordSeen::Settled | PasswordSeen::Differs { .. } => None,
    }
}

/// What is odd and stops nothing.
pub fn remarks(cluster: &ClusterRecord, seen: &Observation) -> Vec<Finding> {
    let remark = |reason, message| Finding::new(Stance::Blocked, reason, message).told(Tell::Warning);
    let mut remarks: Vec<_> = cluster
        .wishes
        .misread
        .iter()
        .map(|sentence| remark("AnnotationIgnored", format!("annotation {sentence}")))
        .collect();
    if let PasswordSeen::Differs { secret } = &seen.objects.password {
        let message = format!(
            "Secret {secret} is gone or has another password than the one in force, which stays: Usher does not change \
             passwords yet. Put the old one back, or create another cluster"
        );
        remarks.push(remark("PasswordChangeNotApplied", message));
    }
    let refused = seen.pods.values().filter_map(|pod| match seen.answers.get(&pod.uid) {
        Some(Answer::Silent {
            error,
            refused: true,
            since,
        }) => Some((pod, error, *since)),
        _ => None,
    });
    for (pod, error, since) in refused {
        let message = format!(
            "AuthRefused {}: {error}; the password in force is in Secret {}",
            pod.name,
            cluster.config_secret()
        );
        remarks.push(remark("AuthRefused", message).since(since));
    }
    remarks
}

#[cfg(test)]
mod tests;
