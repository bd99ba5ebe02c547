//! A request's query parameters, and the options that are made from them.

use serde_json::{Map, Value};

use crate::fault::{Fault, FieldError, Path, Subject};
use crate::registry::ask::FieldValidation;
use crate::registry::read::{ListOptions, Selection};
use crate::registry::select::{FieldSelector, LabelSelector};
use crate::registry::watch::WatchOptions;
use crate::registry::{DeleteOptions, LogOptions, check_dry_run};

/// Pairs in the order given; of a name given twice the first counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self(
            form_urlencoded::parse(text.as_bytes())
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Every value given for a name.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let pairs = self.0.iter().filter(|(key, _)| key == name);
        pairs.map(|(_, value)| value.clone()).collect()
    }

    /// A flag: present and neither `false` nor `0`, as the reference reads it.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.find(name)
            .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Fault> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Fault::bad_request(format!(
                    "strconv.ParseInt: parsing {}: invalid syntax",
                    crate::fault::quote(text)
                ))
            }),
        }
    }

    fn selection(&self) -> Result<Selection, Fault> {
        Ok(Selection {
            labels: LabelSelector::parse(self.get("labelSelector"))?,
            fields: FieldSelector::parse(self.get("fieldSelector"))?,
        })
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.flag("watch")
    }

    pub(crate) fn list_options(&self) -> Result<ListOptions, Fault> {
        self.number("timeoutSeconds")?;
        let limit = self.number("limit")?.unwrap_or(0);
        Ok(ListOptions {
            selection: self.selection()?,
            limit: usize::try_from(limit).unwrap_or(0),
            token: self.get("continue").to_owned(),
            version: self.get("resourceVersion").to_owned(),
            version_match: self.get("resourceVersionMatch").to_owned(),
            asks_initial_events: self.find("sendInitialEvents").is_some(),
        })
    }

    pub(crate) fn watch_options(&self) -> Result<WatchOptions, Fault> {
        let timeout = self.number("timeoutSeconds")?;
        Ok(WatchOptions {
            selection: self.selection()?,
            version: self.get("resourceVersion").to_owned(),
            version_match: self.get("resourceVersionMatch").to_owned(),
            bookmarks: self.flag("allowWatchBookmarks"),
            initial_events: self.find("sendInitialEvents").map(|_| self.flag("sendInitialEvents")),
            timeout_seconds: timeout.and_then(|seconds| u64::try_from(seconds).ok()),
        })
    }

    pub(crate) fn log_options(&self) -> Result<LogOptions, Fault> {
        let mut options = LogOptions {
            container: self.get("container").to_owned(),
            stream: self.get("stream").to_owned(),
            follow: self.flag("follow"),
            previous: self.flag("previous"),
            timestamps: self.flag("timestamps"),
            ..LogOptions::default()
        };
        let since = self.get("sinceTime");
        if !since.is_empty() {
            let time = since.parse().map_err(|_| {
                let shown = crate::fault::quote(since);
                Fault::bad_request(format!(
                    "sinceTime: {shown} is no time: give one like 2026-11-16T10:00:00Z"
                ))
            });
            options.since_time = Some(time?);
        }
        for name in ["tailLines", "sinceSeconds", "limitBytes"] {
            if let Some(number) = self.number(name)? {
                options.numbers.push((name, number));
            }
        }
        Ok(options)
    }

    fn dry_run_words(&self) -> Vec<String> {
        self.all("dryRun")
    }

    /// `dryRun` and `fieldValidation` for a write whose options are called `options` (`CreateOptions`, …).
    pub(crate) fn dry_run(&self, options: &str) -> Result<bool, Fault> {
        let words = self.dry_run_words();
        match check_dry_run(&words) {
            Some(error) => Err(invalid(options, &error)),
            None => Ok(!words.is_empty()),
        }
    }

    pub(crate) fn validation(&self, options: &str) -> Result<FieldValidation, Fault> {
        match self.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let error =
                    FieldError::not_supported(&Path::new("fieldValidation"), other, &["", "Ignore", "Strict", "Warn"]);
                Err(invalid(options, &error))
            }
        }
    }

    /// Options as webhooks are shown them.
    pub(crate) fn options(&self, kind: &str) -> Value {
        let mut options = Map::new();
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        options.insert("kind".to_owned(), kind.into());
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(value) = self.find(name) {
                options.insert(name.to_owned(), value.into());
            }
        }
        if self.find("dryRun").is_some() {
            options.insert("dryRun".to_owned(), vec![Value::from(self.get("dryRun"))].into());
        }
        if self.find("force").is_some() {
            options.insert("force".to_owned(), self.flag("force").into());
        }
        Value::Object(options)
    }

    /// What a delete asks for: the body if there is one, else the query.
    pub(crate) fn delete_options(&self, body: Option<Value>) -> Result<DeleteOptions, Fault> {
        let Some(body) = body else {
            return Ok(DeleteOptions {
                grace_seconds: self.number("gracePeriodSeconds")?,
                propagation: self.find("propagationPolicy").map(str::to_owned),
                orphan_dependents: self.find("orphanDependents").map(|_| self.flag("orphanDependents")),
                uid: self.find("uid").map(str::to_owned),
                resource_version: None,
                dry_run: self.dry_run_words(),
                raw: self.options("DeleteOptions"),
            });
        };
        let unrecognized =
            |why: String| Fault::bad_request(format!("couldn't get version/kind; json parse error: {why}"));
        if !body.is_object() && !body.is_null() {
            return Err(Fault::bad_request(crate::go::no_type(crate::go::json_kind(&body))));
        }
        for field in ["apiVersion", "kind"] {
            if let Some(wrong) = body.get(field).filter(|value| !value.is_string() && !value.is_null()) {
                return Err(unrecognized(format!(
                    "json: cannot unmarshal {} into Go struct field .{field} of type string",
                    crate::go::json_kind(wrong)
                )));
            }
        }
        let kind = body.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            let version = body.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            return Err(Fault::bad_request(format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                crate::fault::quote(kind),
                crate::fault::quote(version)
            )));
        }
        let mut options = DeleteOptions::read(body).map_err(Fault::bad_request)?;
        if options.dry_run.is_empty() {
            // The reference reads only one of the two. Who asks for a dry run in the other means it all the same.
            options.dry_run = self.dry_run_words();
        }
        Ok(options)
    }
}

/// Options that break a rule. `kind` is theirs: `CreateOptions`, …
pub(super) fn invalid(kind: &str, error: &FieldError) -> Fault {
    let subject = Subject {
        group: "meta.k8s.io".to_owned(),
        kind: kind.to_owned(),
    };
    Fault::invalid(&subject, "", std::slice::from_ref(error))
}

/// A `fieldManager` is short and can be printed.
pub(super) fn check_manager(manager: &str, options: &str) -> Result<(), Fault> {
    const MOST: usize = 128;
    let path = Path::new("fieldManager");
    if manager.len() > MOST {
        return Err(invalid(options, &FieldError::too_long(&path, MOST)));
    }
    if let Some(letter) = manager.chars().find(|letter| letter.is_control()) {
        let at = manager.find(letter).unwrap_or_default();
        let error = FieldError::invalid(
            &path,
            manager,
            format!("invalid character U+{:04X} (at position {at})", u32::from(letter)),
        );
        return Err(invalid(options, &error));
    }
    Ok(())
}
