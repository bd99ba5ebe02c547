//! AdmissionReview: what a webhook is asked, and what its answer means.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::admission::{Operation, Review};
use crate::fault::{Fault, quote};
use crate::registry::{Registry, object};

/// What a webhook said.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    pub(super) status: Value,
    pub(super) warnings: Vec<String>,
    /// As it was sent; empty: none was.
    patch: String,
    patch_type: String,
}

impl Verdict {
    /// The operations of its patch; `None`: there is nothing to do.
    pub(super) fn patch(&self) -> Result<Option<Value>, String> {
        if self.patch.is_empty() {
            return Ok(None);
        }
        let wrong = |why: String| format!("received undecodable patch in webhook response: {why}");
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(&self.patch)
            .map_err(|why| wrong(why.to_string()))?;
        let operations: Value = serde_json::from_slice(&bytes).map_err(|why| wrong(why.to_string()))?;
        let Some(list) = operations.as_array() else {
            return Err(wrong(
                "json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned(),
            ));
        };
        if list.is_empty() {
            return Ok(None);
        }
        if self.patch_type != "JSONPatch" {
            return Err(format!("unsupported patch type {}", quote(&self.patch_type)));
        }
        Ok(Some(operations))
    }
}

/// An object in another version of its kind: only its `apiVersion` differs (D1).
pub(super) fn in_version(review: &Review<'_>, object: &Value, version: &str) -> Value {
    let mut shown = object.clone();
    let api_version = review.target.resource.api_version(version);
    object::as_map(&mut shown).insert("apiVersion".to_owned(), api_version.into());
    shown
}

/// What is written at a subresource that has a kind of its own: group, version and kind.
pub(super) fn own_kind(review: &Review<'_>) -> Option<(&'static str, &'static str, &'static str)> {
    match review.target.subresource.as_deref()? {
        "scale" => Some(("autoscaling", "v1", "Scale")),
        "eviction" => Some(("policy", "v1", "Eviction")),
        "binding" => Some(("", "v1", "Binding")),
        _ => None,
    }
}

/// Whether what is written is a command, which is not stored.
pub(super) fn is_command(review: &Review<'_>) -> bool {
    matches!(review.target.subresource.as_deref(), Some("eviction" | "binding"))
}

/// As webhooks see it: the scale subresource is written as a `Scale`.
pub(super) fn shown(review: &Review<'_>, object: &Value, version: &str) -> Value {
    if is_command(review) {
        return object.clone();
    }
    if review.target.subresource.as_deref() == Some("scale")
        && let Ok(scale) = Registry::scale_of(review.target, object)
    {
        return scale;
    }
    in_version(review, object, version)
}

/// The `request` of an AdmissionReview, without the objects.
pub(super) fn request(review: &Review<'_>, version: &str, uid: &str) -> Value {
    let row = &review.target.resource.row;
    let subresource = review.target.subresource.as_deref().unwrap_or_default();
    let kind = |version: &str| match own_kind(review) {
        Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
        None => json!({"group": &*row.group, "version": version, "kind": &*row.kind}),
    };
    let resource = |version: &str| json!({"group": &*row.group, "version": version, "resource": &*row.plural});
    let asked = &*review.target.version.name;
    let mut request = json!({
        "uid": uid,
        "kind": kind(version), "resource": resource(version),
        "requestKind": kind(asked), "requestResource": resource(asked),
        "operation": review.operation.name(),
        "userInfo": review.ask.caller.info(),
        "dryRun": review.ask.dry_run,
        "options": options(review),
    });
    let map = object::as_map(&mut request);
    // A namespace is its own.
    let is_namespace = row.group.is_empty() && &*row.kind == "Namespace";
    let namespace = if is_namespace { review.name } else { review.namespace() };
    for (field, text) in [
        ("subResource", subresource),
        ("requestSubResource", subresource),
        ("name", review.name),
        ("namespace", namespace),
    ] {
        if !text.is_empty() {
            map.insert(field.to_owned(), text.into());
        }
    }
    request
}

/// The options of what a write comes to: a patch is an update, or a create.
fn options(review: &Review<'_>) -> Value {
    let kind = match review.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = review.ask.options.clone();
    if let Some(map) = options.as_object_mut() {
        map.insert("kind".to_owned(), kind.into());
        map.remove("force");
    }
    options
}

/// The answer, checked. An error is a sentence in the reference's words.
pub(super) fn verdict(answer: &Value, uid: &str, version: &str, mutating: bool) -> Result<Verdict, String> {
    let Some(response) = answer.get("response").filter(|response| response.is_object()) else {
        return Err("webhook response was absent".to_owned());
    };
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let patch = text(response, "patch");
    let patch_type = response.get("patchType").and_then(Value::as_str);
    if version == "v1" {
        let said = text(response, "uid");
        if said != uid {
            return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&said)));
        }
        let (api_version, kind) = (text(answer, "apiVersion"), text(answer, "kind"));
        if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={kind}"
            ));
        }
        match (mutating, patch.is_empty(), patch_type) {
            (true, false, None) => return Err("webhook returned response.patch but not response.patchType".to_owned()),
            (true, true, Some(_)) => {
                return Err("webhook returned response.patchType but not response.patch".to_owned());
            }
            (true, _, Some("")) => return Err("webhook returned invalid response.patchType of \"\"".to_owned()),
            (false, false, _) => return Err("validating webhook may not return response.patch".to_owned()),
            (false, _, Some(_)) => return Err("validating webhook may not return response.patchType".to_owned()),
            _ => {}
        }
    }
    Ok(Verdict {
        allowed: response.get("allowed") == Some(&Value::Bool(true)),
        status: response.get("status").cloned().unwrap_or_default(),
        warnings: response
            .get("warnings")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|warning| warning.as_str().map(str::to_owned))
            .collect(),
        patch: if mutating { patch } else { String::new() },
        patch_type: match version {
            "v1" => patch_type.unwrap_or_default().to_owned(),
            // Not asked for in the older version.
            _ => "JSONPatch".to_owned(),
        },
    })
}

/// What the client is told when a webhook says no.
pub(super) fn denial(hook: &str, status: &Value) -> Fault {
    let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or_default();
    let denied = format!("admission webhook {} denied the request", quote(hook));
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status.get("code").and_then(Value::as_u64).unwrap_or(0);
    let code = u16::try_from(code)
        .ok()
        .filter(|code| (400..=599).contains(code))
        .unwrap_or(400);
    let mut fault = Fault::new(code, "", message);
    fault.reason = text("reason").to_owned().into();
    fault.details = status.get("details").and_then(Value::as_object).cloned();
    fault.retry_after_seconds = seconds(fault.details.as_ref());
    fault
}

fn seconds(details: Option<&Map<String, Value>>) -> Option<u32> {
    u32::try_from(details?.get("retryAfterSeconds")?.as_u64()?).ok()
}
