//! What every answer must be.

use serde_json::Value;

use crate::request::{Sent, cut};
use crate::world::Got;

/// The answer as a value; `Null` where it is text. `Err`: it breaks a rule.
pub fn answer(sent: &Sent, got: &Got, writes: u64) -> Result<Value, String> {
    let media = got
        .headers
        .get("content-type")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let shown = || cut(&String::from_utf8_lossy(&got.body), 2_000);
    if got.headers.get("audit-id").is_none() {
        return Err(format!("A7: {} without an Audit-Id: {}", got.code, shown()));
    }
    if sent.method == "HEAD" {
        return Ok(Value::Null);
    }
    let is_json = media.starts_with("application/json");
    if got.is_open || got.code == 200 && is_json && serde_json::from_slice::<Value>(&got.body).is_err() {
        return lines(got).map(|()| Value::Null);
    }
    let value = if is_json {
        serde_json::from_slice(&got.body).map_err(|why| format!("{} is not JSON: {why}: {}", got.code, shown()))?
    } else if media.starts_with("application/yaml") {
        let text = std::str::from_utf8(&got.body).map_err(|why| format!("YAML that is no text: {why}"))?;
        serde_saphyr::from_str(text).map_err(|why| format!("{} is not YAML: {why}: {}", got.code, shown()))?
    } else {
        Value::Null
    };
    let is_fine = (200..400).contains(&got.code);
    if !is_fine && value.is_null() {
        // As the reference answers paths that name nothing.
        let is_plain = got.code == 404 && got.body == b"404 page not found\n";
        let is_document = ["/healthz", "/livez", "/readyz", "/openapi/"]
            .iter()
            .any(|start| sent.path.starts_with(start));
        if !is_plain && !is_document {
            return Err(format!("O23: {} ({media}) is no Status: {}", got.code, shown()));
        }
        return Ok(value);
    }
    if !is_fine {
        status(&value, got.code).map_err(|why| format!("O23: {} {why}: {}", got.code, shown()))?;
    }
    let is_read = matches!(sent.method.as_str(), "GET" | "HEAD");
    let is_dry = sent.parameter("dryRun") == Some("All");
    if writes > 0 && (is_read || is_dry) {
        return Err(format!(
            "{} a request that may not write wrote {writes}: {}",
            got.code,
            shown()
        ));
    }
    if writes > 0 && !is_fine {
        return Err(format!(
            "{} was refused, and yet {writes} written: {}",
            got.code,
            shown()
        ));
    }
    Ok(value)
}

fn status(value: &Value, code: u16) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("is a Status with a wrong {what}"));
    if value["kind"] != "Status" || value["apiVersion"] != "v1" {
        return Err("is no Status".to_owned());
    }
    if value["status"] != "Failure" {
        return wrong("status");
    }
    if value["code"] != code {
        return wrong("code");
    }
    if value["message"].as_str().is_none_or(str::is_empty) {
        return wrong("message");
    }
    if value.get("reason").is_some_and(|reason| !reason.is_string()) {
        return wrong("reason");
    }
    if !value["metadata"].is_object() || value.get("details").is_some_and(|details| !details.is_object()) {
        return wrong("metadata or details");
    }
    Ok(())
}

/// A watch: whole lines, each an event, revisions never going back.
fn lines(got: &Got) -> Result<(), String> {
    if got.code != 200 {
        let value: Value = serde_json::from_slice(&got.body).map_err(|why| format!("{}: {why}", got.code))?;
        return status(&value, got.code);
    }
    let text = std::str::from_utf8(&got.body).map_err(|why| why.to_string())?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(format!("O3: a watch that ends within a line: {}", cut(text, 500)));
    }
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).map_err(|why| format!("O3: {why}: {}", cut(line, 500)))?;
        let kind = event["type"].as_str().unwrap_or_default();
        if !["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"].contains(&kind) || !event["object"].is_object() {
            return Err(format!("O3: no event: {}", cut(line, 500)));
        }
        if kind == "ERROR" {
            let code = event["object"]["code"].as_u64().unwrap_or_default() as u16;
            status(&event["object"], code)?;
        }
    }
    Ok(())
}
