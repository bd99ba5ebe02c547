//! Parameters of operations.

use serde_json::{Value, json};

pub const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
pub const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
pub const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
pub const DELETE: &[&str] = &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
pub const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];
pub const LOG: &[&str] = &[
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
];
pub const EXEC: &[&str] = &["command", "container", "stderr", "stdin", "stdout", "tty"];
pub const ATTACH: &[&str] = &["container", "stderr", "stdin", "stdout", "tty"];
pub const PORT_FORWARD: &[&str] = &["ports"];

/// A parameter of the query or, for `name` and `namespace`, of the path.
pub fn parameter(name: &str) -> Value {
    let (kind, text) = match name {
        "name" => ("string", "The object's name."),
        "namespace" => ("string", "The object's namespace."),
        "pretty" => ("string", "`true`: the answer is indented."),
        "allowWatchBookmarks" => (
            "boolean",
            "The watch may be told how far it has come, without a change.",
        ),
        "continue" => ("string", "Where the last page ended."),
        "fieldSelector" => ("string", "Only objects whose fields have these values."),
        "labelSelector" => ("string", "Only objects with such labels."),
        "limit" => ("integer", "The most objects of a page."),
        "resourceVersion" => ("string", "The revision to read or to watch from."),
        "resourceVersionMatch" => (
            "string",
            "Whether that revision is meant exactly, or a newer one will do.",
        ),
        "sendInitialEvents" => (
            "boolean",
            "The watch begins with what there is, and says where that ends.",
        ),
        "timeoutSeconds" => ("integer", "When the call ends at the latest."),
        "watch" => ("boolean", "Changes are wanted, not a list."),
        "dryRun" => ("string", "`All`: everything is checked and nothing stored."),
        "fieldManager" => ("string", "Who is to own the fields that this sets."),
        "fieldValidation" => (
            "string",
            "What becomes of unknown or doubled fields: Ignore drops them, Warn drops them with a warning, Strict \
             refuses the request.",
        ),
        "force" => ("boolean", "An apply takes fields that others own."),
        "gracePeriodSeconds" => ("integer", "How long the object has to end; 0 is at once."),
        "orphanDependents" => (
            "boolean",
            "Older form of propagationPolicy: whether what it owns is kept.",
        ),
        "propagationPolicy" => (
            "string",
            "What becomes of what it owns: Orphan, Background or Foreground.",
        ),
        "container" => ("string", "The container, where there are several."),
        "follow" => ("boolean", "New lines are sent as they come."),
        "insecureSkipTLSVerifyBackend" => ("boolean", "Whether the node's certificate goes unchecked."),
        "limitBytes" => ("integer", "The most bytes to send."),
        "previous" => ("boolean", "Of the instance before this one."),
        "sinceSeconds" => ("integer", "Only lines of the last so many seconds."),
        "stream" => ("string", "All, Stdout or Stderr."),
        "tailLines" => ("integer", "Only the last so many lines."),
        "timestamps" => ("boolean", "Each line begins with its time."),
        "command" => ("string", "The command and, repeated, its arguments."),
        "stdin" => ("boolean", "Input is sent."),
        "stdout" => ("boolean", "Output is wanted."),
        "stderr" => ("boolean", "Error output is wanted."),
        "tty" => ("boolean", "It runs on a terminal."),
        "ports" => ("integer", "The ports to forward."),
        _ => ("string", ""),
    };
    let schema = json!({"type": kind, "uniqueItems": true});
    match name {
        "name" | "namespace" => {
            json!({"name": name, "in": "path", "description": text, "required": true, "schema": schema})
        }
        _ => json!({"name": name, "in": "query", "description": text, "schema": schema}),
    }
}
