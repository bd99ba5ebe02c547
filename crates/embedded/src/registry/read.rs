//! Get and list: at the latest revision or an older one, in pages of one snapshot, through selectors (6.1).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::{Fault, FieldError, Path, Subject};
use crate::registry::ask::Target;
use crate::registry::row::Rules;
use crate::registry::select::{FieldSelector, Head, LabelSelector};
use crate::registry::{Registry, object, read_fault};
use crate::store::{self, Entry, Key, ReadError, Revision};

/// The most that one page holds (S8).
const PAGE: usize = 10_000;

/// What a list or a watch is restricted to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) selection: Selection,
    /// 0: all.
    pub(crate) limit: usize,
    /// Empty: from the start.
    pub(crate) token: String,
    pub(crate) version: String,
    pub(crate) version_match: String,
    /// `sendInitialEvents`, which is for watches.
    pub(crate) asks_initial_events: bool,
}

/// Entries of one snapshot.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) entries: Vec<Entry>,
    pub(crate) revision: Revision,
    /// Empty: this is the end.
    pub(crate) token: String,
    pub(crate) remaining: Option<usize>,
}

/// The same as objects of the request's version.
#[derive(Debug)]
pub(crate) struct ListedObjects {
    pub(crate) items: Vec<Value>,
}

/// Where the next page begins (O2).
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    /// The first page's snapshot; -1: whatever is there now.
    rv: i64,
    /// The last key given out.
    start: String,
}

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

impl Registry {
    /// One object, at the latest revision; `version` may ask that it be no older than some revision.
    pub(crate) fn get(&self, target: &Target, version: &str) -> Result<Entry, Fault> {
        if let Some(revision) = parse_version(version).map_err(|why| Fault::new(500, "", why))?
            && revision > self.store.revision()
        {
            let current = self.store.revision();
            return Err(read_fault(&ReadError::Future { current }, revision));
        }
        self.store
            .get(&target.key(), None)
            .ok()
            .flatten()
            .ok_or_else(|| target.not_found())
    }

    pub(crate) fn list(&self, target: &Target, options: &ListOptions) -> Result<Listed, Fault> {
        check_fields(target, &options.selection.fields)?;
        check_versions(options)?;
        let prefix = target.resource.prefix(target.namespace.as_deref());
        let (mut at, mut after) = self.start(options)?;
        // One name is one key.
        if options.token.is_empty()
            && let Some(name) = options.selection.fields.name()
            && (target.namespace.is_some() || !target.resource.row.namespaced)
        {
            return self.list_one(target, options, name, at);
        }
        let limit = if options.limit == 0 {
            usize::MAX
        } else {
            options.limit.min(PAGE)
        };
        let is_selective = !options.selection.is_empty();
        let mut entries = Vec::new();
        loop {
            // A page that selectors thin out is filled from the next ones.
            let wanted = match limit {
                usize::MAX => 0,
                limit if is_selective => PAGE.max(limit),
                limit => limit - entries.len(),
            };
            let page = self
                .store
                .list(&prefix, at, after.as_ref(), wanted)
                .map_err(|error| self.list_fault(&error, at.unwrap_or_default(), after.as_ref()))?;
            let revision = page.revision;
            at = Some(revision);
            let count = page.entries.len();
            for (index, entry) in page.entries.into_iter().enumerate() {
                let is_last = index + 1 == count && !page.more;
                after = Some(entry.key.clone());
                if options
                    .selection
                    .matches(self, target, &entry.value, entry.revision, &entry.key)?
                {
                    entries.push(entry);
                }
                if entries.len() >= limit && !is_last {
                    let remaining = (!is_selective).then(|| page.remaining + count - index - 1);
                    let token = token(revision, after.as_ref())?;
                    return Ok(Listed {
                        entries,
                        revision,
                        token,
                        remaining,
                    });
                }
            }
            if !page.more {
                return Ok(Listed {
                    entries,
                    revision,
                    token: String::new(),
                    remaining: None,
                });
            }
        }
    }

    pub(crate) fn list_objects(&self, target: &Target, options: &ListOptions) -> Result<ListedObjects, Fault> {
        let listed = self.list(target, options)?;
        let items = listed
            .entries
            .iter()
            .map(|entry| self.present(&target.resource, &target.version.name, &entry.value, entry.revision))
            .collect::<Result<_, _>>()?;
        Ok(ListedObjects { items })
    }

    fn list_one(
        &self,
        target: &Target,
        options: &ListOptions,
        name: &str,
        at: Option<Revision>,
    ) -> Result<Listed, Fault> {
        let revision = at.unwrap_or_else(|| self.store.revision());
        let found = self
            .store
            .get(&target.key_of(name), Some(revision))
            .map_err(|error| self.list_fault(&error, revision, None))?;
        let mut entries = Vec::new();
        if let Some(entry) = found
            && options
                .selection
                .matches(self, target, &entry.value, entry.revision, &entry.key)?
        {
            entries.push(entry);
        }
        Ok(Listed {
            entries,
            revision,
            token: String::new(),
            remaining: None,
        })
    }

    /// Which snapshot, and after which key.
    fn start(&self, options: &ListOptions) -> Result<(Option<Revision>, Option<Key>), Fault> {
        if options.token.is_empty() {
            let version = parse_version(&options.version)
                .map_err(|why| Fault::bad_request(format!("invalid resource version: {why}")))?;
            // A page of a revision is of that one, unless the client says that later ones will do.
            let is_exact = match options.version_match.as_str() {
                "" => options.limit > 0,
                wanted => wanted == "Exact",
            };
            return match version {
                Some(revision) if is_exact => Ok((Some(revision), None)),
                Some(revision) if revision > self.store.revision() => {
                    let current = self.store.revision();
                    Err(read_fault(&ReadError::Future { current }, revision))
                }
                _ => Ok((None, None)),
            };
        }
        let wrong = || {
            Fault::bad_request("invalid continue token: continue key is not valid: it was not given out by this server")
        };
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(options.token.trim_end_matches('='))
            .map_err(|_| wrong())?;
        let token: Continue = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let key = Key::parse(&token.start).ok_or_else(wrong)?;
        Ok((Revision::try_from(token.rv).ok(), Some(key)))
    }

    fn list_fault(&self, error: &ReadError, asked: Revision, after: Option<&Key>) -> Fault {
        match (error, after) {
            (ReadError::Compacted { .. }, Some(key)) => {
                let mut fault = Fault::expired(TOO_OLD);
                let start = key.as_str().to_owned();
                fault.next = encode_token(&Continue { rv: -1, start })
                    .ok()
                    .map(String::into_boxed_str);
                fault
            }
            (ReadError::Compacted { .. }, None) => {
                Fault::expired("The resourceVersion for the provided list is too old.")
            }
            _ => read_fault(error, asked),
        }
    }
}

fn token(revision: Revision, after: Option<&Key>) -> Result<String, Fault> {
    let start = after.map(|key| key.as_str().to_owned()).unwrap_or_default();
    let rv = i64::try_from(revision).map_err(Fault::internal)?;
    encode_token(&Continue { rv, start })
}

fn encode_token(token: &Continue) -> Result<String, Fault> {
    let json = serde_json::to_vec(token).map_err(Fault::internal)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(json))
}

/// `None`: unset or `0`, which is any.
pub(crate) fn parse_version(text: &str) -> Result<Option<Revision>, String> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    match text.parse() {
        Ok(revision) => Ok(Some(revision)),
        Err(_) => {
            let why = format!(
                "strconv.ParseUint: parsing {}: invalid syntax",
                crate::fault::quote(text)
            );
            Err(FieldError::invalid(&Path::new("resourceVersion"), text, why).to_string())
        }
    }
}

fn check_versions(options: &ListOptions) -> Result<(), Fault> {
    let mut errors = Vec::new();
    let path = Path::new("resourceVersionMatch");
    if options.asks_initial_events {
        errors.push(FieldError::forbidden(
            &Path::new("sendInitialEvents"),
            "sendInitialEvents is forbidden for list",
        ));
    }
    if !options.version_match.is_empty() {
        if !options.token.is_empty() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        } else if options.version.is_empty() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        } else if !matches!(options.version_match.as_str(), "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(
                &path,
                options.version_match.as_str(),
                &["Exact", "NotOlderThan", ""],
            ));
        } else if options.version_match == "Exact" && options.version == "0" {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if !errors.is_empty() {
        return Err(list_options_fault(&errors));
    }
    if !options.token.is_empty() && !options.version.is_empty() && options.version != "0" {
        return Err(Fault::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    Ok(())
}

pub(super) fn list_options_fault(errors: &[FieldError]) -> Fault {
    let subject = Subject {
        group: "meta.k8s.io".to_owned(),
        kind: "ListOptions".to_owned(),
    };
    Fault::invalid(&subject, "", errors)
}

/// Whether the kind can be selected by these fields (O5).
pub(crate) fn check_fields(target: &Target, fields: &FieldSelector) -> Result<(), Fault> {
    for field in fields.fields() {
        let is_known = matches!(field, "metadata.name" | "metadata.namespace")
            || target
                .version
                .selectable
                .iter()
                .any(|known| known.trim_start_matches('.') == field)
            || match target.resource.row.rules {
                Rules::BuiltIn(rules) => rules.fields.iter().any(|(known, _)| *known == field),
                Rules::Custom => false,
            };
        if !is_known {
            let knows_more = !target.version.selectable.is_empty()
                || matches!(target.resource.row.rules, Rules::BuiltIn(rules) if !rules.fields.is_empty());
            return Err(Fault::bad_request(if knows_more {
                format!("field label not supported: {field}")
            } else {
                format!(
                    "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                    crate::fault::quote(field)
                )
            }));
        }
    }
    Ok(())
}

impl Selection {
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether a stored object is selected. Reads no more of it than it must.
    pub(crate) fn matches(
        &self,
        registry: &Registry,
        target: &Target,
        value: &store::Value,
        revision: Revision,
        key: &Key,
    ) -> Result<bool, Fault> {
        if !self.labels.is_empty() {
            let head: Head = serde_json::from_slice(value.json()).map_err(Fault::internal)?;
            if !self.labels.matches(&head.metadata.labels) {
                return Ok(false);
            }
        }
        if self.fields.is_empty() {
            return Ok(true);
        }
        let is_by_key = self
            .fields
            .fields()
            .all(|field| matches!(field, "metadata.name" | "metadata.namespace"));
        let object = if is_by_key {
            Value::Null
        } else {
            registry.present(&target.resource, &target.version.name, value, revision)?
        };
        Ok(self.fields.matches(|field| match field {
            "metadata.name" => key.name().to_owned(),
            "metadata.namespace" => key.namespace().unwrap_or_default().to_owned(),
            _ => field_text(target, &object, field),
        }))
    }
}

/// What a field selector compares with.
fn field_text(target: &Target, object: &Value, field: &str) -> String {
    if let Rules::BuiltIn(rules) = target.resource.row.rules
        && let Some((_, read)) = rules.fields.iter().find(|(known, _)| *known == field)
    {
        return read(object);
    }
    match object::at(object, field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}
