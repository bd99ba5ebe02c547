//! Mutating- and ValidatingWebhookConfiguration. Calling webhooks is admission's, and so is compiling conditions.

use serde_json::{Map, Value};

use super::checks::{Errors, among, qualified};
use super::metadata::invalid;
use super::names;
use super::reading::{at, default_to, given, integer, list, list_mut, text};
use super::selector::check_selector;
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

const ACCEPTED_VERSIONS: &str = "v1, v1beta1";

const SHARED: BuiltIn = BuiltIn {
    unconditional_update: false,
    ..BuiltIn::PLAIN
};

pub static MUTATING: BuiltIn = BuiltIn {
    default: |configuration| default(configuration, true),
    check: |configuration| check(configuration, true),
    ..SHARED
};

pub static VALIDATING: BuiltIn = BuiltIn {
    default: |configuration| default(configuration, false),
    check: |configuration| check(configuration, false),
    ..SHARED
};

fn default(configuration: &mut Value, mutating: bool) {
    for hook in list_mut(configuration, "webhooks") {
        default_to(hook, "failurePolicy", "Fail");
        default_to(hook, "matchPolicy", "Equivalent");
        default_to(hook, "namespaceSelector", Map::new());
        default_to(hook, "objectSelector", Map::new());
        default_to(hook, "timeoutSeconds", 10);
        if mutating {
            default_to(hook, "reinvocationPolicy", "Never");
        }
        if let Some(service) = hook
            .pointer_mut("/clientConfig/service")
            .filter(|service| service.is_object())
        {
            default_to(service, "port", 443);
        }
        for rule in list_mut(hook, "rules") {
            default_to(rule, "scope", "*");
        }
    }
}

fn check(configuration: &Value, mutating: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let hooks = list(configuration, "webhooks");
    for (index, hook) in hooks.iter().enumerate() {
        let path = Path::new("webhooks").index(index);
        check_hook(&mut errors, hook, mutating, &path);
        check_versions(&mut errors, hook, &path.field("admissionReviewVersions"));
        let name = text(hook, "name");
        if !name.is_empty() && hooks.iter().take(index).any(|earlier| text(earlier, "name") == name) {
            errors.push(FieldError::duplicate(&path.field("name"), name));
        }
    }
    errors
}

fn check_hook(errors: &mut Errors, hook: &Value, mutating: bool, path: &Path) {
    check_name(errors, text(hook, "name"), &path.field("name"));
    for (index, rule) in list(hook, "rules").iter().enumerate() {
        check_rule(errors, rule, &path.field("rules").index(index));
    }
    for (field, supported) in [
        ("failurePolicy", &["Fail", "Ignore"]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("sideEffects", &["None", "NoneOnDryRun"]),
    ] {
        if field == "sideEffects" && given(hook, field).is_none() {
            errors.push(FieldError::required(
                &path.field(field),
                "must specify one of None, NoneOnDryRun",
            ));
        }
        among(errors, &path.field(field), hook.get(field), supported);
    }
    if let Some(seconds) = integer(hook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        errors.push(FieldError::invalid(
            &path.field("timeoutSeconds"),
            seconds,
            "the timeout value must be between 1 and 30 seconds",
        ));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        errors.extend(check_selector(at(hook, &format!("/{field}")), &path.field(field)));
    }
    if mutating {
        among(
            errors,
            &path.field("reinvocationPolicy"),
            hook.get("reinvocationPolicy"),
            &["IfNeeded", "Never"],
        );
    }
    check_client(errors, at(hook, "/clientConfig"), &path.field("clientConfig"));
    check_conditions(errors, list(hook, "matchConditions"), &path.field("matchConditions"));
}

/// A name with a domain, so that hooks of different makers differ.
fn check_name(errors: &mut Errors, name: &str, path: &Path) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let wrong = names::dns_subdomain(name);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, name, wrong.join(",")));
    } else if name.split('.').count() < 3 {
        errors.push(FieldError::invalid(
            path,
            name,
            "should be a domain with at least three segments separated by dots",
        ));
    }
}

fn check_rule(errors: &mut Errors, rule: &Value, path: &Path) {
    let operations = list(rule, "operations");
    let operations_path = path.field("operations");
    required(errors, operations, &operations_path);
    alone(errors, operations, "*", "operations", &operations_path);
    for (index, operation) in operations.iter().enumerate() {
        among(
            errors,
            &operations_path.index(index),
            Some(operation),
            &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"],
        );
    }
    for (field, words) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        required(errors, list(rule, field), &path.field(field));
        alone(errors, list(rule, field), "*", words, &path.field(field));
    }
    for (index, version) in list(rule, "apiVersions").iter().enumerate() {
        if version == "" {
            errors.push(FieldError::required(&path.field("apiVersions").index(index), ""));
        }
    }
    check_resources(errors, list(rule, "resources"), &path.field("resources"));
    among(
        errors,
        &path.field("scope"),
        rule.get("scope"),
        &["*", "Cluster", "Namespaced"],
    );
}

fn required(errors: &mut Errors, items: &[Value], path: &Path) {
    if items.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
}

fn alone(errors: &mut Errors, items: &[Value], wildcard: &str, words: &str, path: &Path) {
    if items.len() > 1 && items.iter().any(|item| item == wildcard) {
        errors.push(FieldError::invalid(
            path,
            items.to_vec(),
            format!("if '{wildcard}' is present, must not specify other {words}"),
        ));
    }
}

fn check_resources(errors: &mut Errors, resources: &[Value], path: &Path) {
    required(errors, resources, path);
    let (mut whole, mut everywhere): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    // The reference remembers the last one only.
    let mut plain = false;
    for (index, resource) in resources.iter().enumerate() {
        let resource = resource.as_str().unwrap_or_default();
        let path = path.index(index);
        if resource.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let Some((name, sub)) = resource.split_once('/') else {
            plain = resource != "*";
            continue;
        };
        for (seen, pattern) in [
            (whole.contains(&name), format!("{name}/*")),
            (everywhere.contains(&sub), format!("*/{sub}")),
        ] {
            if seen {
                errors.push(FieldError::invalid(
                    &path,
                    resource,
                    format!("if '{pattern}' is present, must not specify {resource}"),
                ));
            }
        }
        if sub == "*" {
            whole.push(name);
        }
        if name == "*" {
            everywhere.push(sub);
        }
    }
    alone(errors, resources, "*/*", "resources", path);
    if plain && resources.iter().any(|resource| resource == "*") {
        errors.push(FieldError::invalid(
            path,
            resources.to_vec(),
            "if '*' is present, must not specify other resources without subresources",
        ));
    }
}

fn check_versions(errors: &mut Errors, hook: &Value, path: &Path) {
    let versions = list(hook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(
            path,
            format!("must specify one of {ACCEPTED_VERSIONS}"),
        ));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let (path, text) = (path.index(index), version.as_str().unwrap_or_default());
        if versions.iter().take(index).any(|earlier| earlier == version) {
            errors.push(FieldError::invalid(&path, text, "duplicate version"));
        } else {
            invalid(errors, &path, text, names::dns_1035(text));
        }
    }
    if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        errors.push(FieldError::invalid(
            path,
            versions.to_vec(),
            format!("must include at least one of {ACCEPTED_VERSIONS}"),
        ));
    }
}

fn check_client(errors: &mut Errors, client: &Value, path: &Path) {
    match (given(client, "url"), given(client, "service")) {
        (Some(_), None) => check_url(errors, text(client, "url"), &path.field("url")),
        (None, Some(service)) => check_service(errors, service, &path.field("service")),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn check_url(errors: &mut Errors, url: &str, path: &Path) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once(':').unwrap_or(("", rest));
    let authority = rest
        .strip_prefix("//")
        .map_or("", |rest| rest.split('/').next().unwrap_or_default());
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, host)| (Some(user), host));
    let mut push = |value: &str, words: String| errors.push(FieldError::invalid(path, value, words));
    if scheme != "https" {
        push(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        push(host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        push(user, "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        push(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        push(query, "query parameters are not permitted in the URL".to_owned());
    }
}

fn check_service(errors: &mut Errors, service: &Value, path: &Path) {
    for field in ["name", "namespace"] {
        if text(service, field).is_empty() {
            errors.push(FieldError::required(&path.field(field), ""));
        }
    }
    let port = integer(service, "port").unwrap_or(0);
    for sentence in names::port_number(port) {
        errors.push(FieldError::invalid(
            &path.field("port"),
            port,
            format!("port is not valid: {sentence}"),
        ));
    }
    check_service_path(errors, text(service, "path"), &path.field("path"));
}

fn check_service_path(errors: &mut Errors, url: &str, path: &Path) {
    if url.is_empty() || url == "/" {
        return;
    }
    let mut push = |words: String| errors.push(FieldError::invalid(path, url, words));
    if url == "//" {
        push("segment[0] may not be empty".to_owned());
        return;
    }
    if !url.starts_with('/') {
        push("must start with a '/'".to_owned());
    }
    // Without the first character, whatever it is.
    let mut rest = url.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            push(format!("segment[{index}] may not be empty"));
            continue;
        }
        for sentence in names::dns_subdomain(step) {
            push(format!("segment[{index}]: {sentence}"));
        }
    }
}

fn check_conditions(errors: &mut Errors, conditions: &[Value], path: &Path) {
    if conditions.len() > 64 {
        errors.push(FieldError::too_many(path, conditions.len(), 64));
    }
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        if text(condition, "expression").trim().is_empty() {
            errors.push(FieldError::required(&path.field("expression"), ""));
        }
        let name = text(condition, "name");
        if name.is_empty() {
            errors.push(FieldError::required(&path.field("name"), ""));
        } else {
            qualified(errors, &path.field("name"), name);
            if conditions
                .iter()
                .take(index)
                .any(|earlier| text(earlier, "name") == name)
            {
                errors.push(FieldError::duplicate(&path.field("name"), name));
            }
        }
    }
}
