//! A watch as lines of JSON. An event is written once for each representation, however many watch (S9).

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};

use crate::api::negotiate::{Representation, Shape};
use crate::api::table::{self, IncludeObject, MetaVersion, Wanted};
use crate::fault::Fault;
use crate::kinds;
use crate::registry::ask::Target;
use crate::registry::row::Rules;
use crate::registry::watch::{EventKind, Seen, Watch};
use crate::registry::{Registry, object};
use crate::schema::jsonpath;
use crate::store::{self, Revision};

/// Lines for one watcher.
#[derive(Debug)]
pub(crate) struct WatchLines {
    registry: std::sync::Arc<Registry>,
    watch: Watch,
    target: Target,
    representation: Representation,
    include: IncludeObject,
    /// Only the first event of a Table watch says what the columns are.
    is_first: bool,
    ended: bool,
}

impl WatchLines {
    pub(crate) fn new(
        registry: std::sync::Arc<Registry>,
        watch: Watch,
        target: Target,
        representation: Representation,
        include: IncludeObject,
    ) -> Self {
        Self {
            registry,
            watch,
            target,
            representation,
            include,
            is_first: true,
            ended: false,
        }
    }

    pub(crate) fn poll_line(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.watch).poll_next(context).map(|seen| {
            let seen = seen?;
            match self.line(seen) {
                Ok(bytes) => Some(bytes),
                Err(fault) => {
                    self.ended = true;
                    Some(error_line(&fault))
                }
            }
        })
    }

    fn line(&mut self, seen: Seen) -> Result<Bytes, Fault> {
        let is_first = std::mem::take(&mut self.is_first);
        match seen {
            Seen::Failed(fault) => {
                self.ended = true;
                Ok(error_line(&fault))
            }
            Seen::Bookmark { revision, ends_initial } => {
                let object = self.bookmark(revision, ends_initial);
                let object = self.shaped(object, is_first);
                Ok(event_line("BOOKMARK", &object))
            }
            Seen::Object {
                kind,
                value,
                revision,
                written,
                line,
            } => match line {
                Some(line) => {
                    let mut failed = None;
                    let bytes = line.rendered(self.form(kind, is_first), || {
                        let event = self.event(kind, &value, (written, revision), is_first);
                        event.unwrap_or_else(|fault| {
                            failed = Some(fault);
                            Bytes::new()
                        })
                    });
                    match failed {
                        Some(fault) => Err(fault),
                        None => Ok(bytes),
                    }
                }
                None => self.event(kind, &value, (written, revision), is_first),
            },
        }
    }

    /// What this watcher is shown of an event: the edition of the kind, in which a version is known by its place; and a
    /// number for kind of event, version, shape; of a Table, whether its columns are told.
    fn form(&self, kind: EventKind, is_first: bool) -> (u64, u32) {
        let version = self
            .target
            .resource
            .row
            .versions
            .iter()
            .position(|version| version.name == self.target.version.name)
            .unwrap_or_default();
        let shape = match (self.representation.shape, self.include) {
            (Shape::Object, _) => 0,
            (Shape::Metadata(MetaVersion::V1), _) => 1,
            (Shape::Metadata(MetaVersion::V1Beta1), _) => 2,
            (Shape::Table(version), include) => {
                let include = match include {
                    IncludeObject::None => 0,
                    IncludeObject::Metadata => 1,
                    IncludeObject::Object => 2,
                };
                let version = u32::from(version == MetaVersion::V1Beta1);
                3 + include + 3 * version + 6 * u32::from(is_first)
            }
        };
        // The two views of an Event are two forms of one line.
        let view = u32::from(kinds::stored_as(&self.target.resource.row).is_some());
        let version = u32::try_from(version).unwrap_or_default();
        let edition = self.target.resource.edition.number;
        (edition, ((version * 16 + shape) * 4 + kind as u32) * 2 + view)
    }

    /// The value's own revision decides whether it must be shaped anew; what is shown is the event's.
    fn event(
        &self,
        kind: EventKind,
        value: &store::Value,
        (written, shown): (Revision, Revision),
        is_first: bool,
    ) -> Result<Bytes, Fault> {
        let target = &self.target;
        let is_plain = Registry::is_plain(&target.resource, &target.version.name, written);
        if self.representation.shape == Shape::Object && is_plain {
            let mut bytes = Vec::with_capacity(value.len() + 64);
            bytes.extend_from_slice(br#"{"type":""#);
            bytes.extend_from_slice(kind.word().as_bytes());
            bytes.extend_from_slice(br#"","object":"#);
            value.write_to(&mut bytes, shown);
            bytes.extend_from_slice(b"}\n");
            return Ok(bytes.into());
        }
        let object = self
            .registry
            .present_as(&target.resource, &target.version.name, value, written, shown)?;
        Ok(event_line(kind.word(), &self.shaped(object, is_first)))
    }

    fn shaped(&self, object: Value, is_first: bool) -> Value {
        match self.representation.shape {
            Shape::Object => object,
            Shape::Metadata(version) => table::partial(object, version),
            Shape::Table(version) => {
                let wanted = Wanted {
                    version,
                    include: self.include,
                    definitions: is_first,
                    now: self.registry.clock.now(),
                };
                table::table_of_one(&self.target.version.columns, object, wanted, &|object, path| {
                    jsonpath::evaluate(object, path)
                })
            }
        }
    }

    /// An otherwise empty object of the kind that says how far the watch has come.
    fn bookmark(&self, revision: Revision, ends_initial: bool) -> Value {
        let target = &self.target;
        let mut bookmark = json!({
            "apiVersion": target.api_version(),
            "kind": target.resource.row.kind.to_string(),
            "metadata": {"resourceVersion": revision.to_string()},
        });
        if let Rules::BuiltIn(_) = target.resource.row.rules {
            // As an empty object of the type is written.
            let _ = kinds::decode(&target.version.schema, &mut bookmark);
        }
        if ends_initial {
            object::meta_mut(&mut bookmark)
                .insert("annotations".to_owned(), json!({"k8s.io/initial-events-end": "true"}));
        }
        bookmark
    }
}

fn event_line(kind: &str, object: &Value) -> Bytes {
    let mut bytes = json!({"type": kind, "object": object}).to_string().into_bytes();
    bytes.push(b'\n');
    bytes.into()
}

fn error_line(fault: &Fault) -> Bytes {
    event_line("ERROR", &fault.status())
}
