//! What a write stands on: the namespace of a new object, and the definition of its kind.
//!
//! Both are looked at before webhooks are asked, which may take seconds; so the write itself is made on the condition
//! that neither has moved since, and what did move is looked at again. Otherwise an object could be left for ever in a
//! namespace that is gone, or behind a definition that was deleted or says something else by now. Called by create and
//! update.

use serde_json::Value;

use crate::admission::Review;
use crate::fault::Fault;
use crate::registry::ask::Target;
use crate::registry::definitions::{GROUP, PLURAL, is_true};
use crate::registry::update::MOVED;
use crate::registry::{Refused, Registry, TRIES, object};
use crate::schema;
use crate::store::{Change, Entry, Expect, Key, Revision, Write, WriteError};

/// Writes that store nothing: together they say what must not have moved.
pub(super) type Ground = Vec<Write>;

/// What became of a definition.
enum Definition {
    /// It has moved, but its schemas are the same.
    Same(Revision),
    /// Objects are to be as this one says.
    Renewed(Revision, Box<Target>),
}

fn stays(key: Key, revision: Revision) -> Write {
    Write {
        key,
        expect: Expect::Revision(revision),
        change: Change::Keep,
    }
}

fn definition_key(target: &Target) -> Option<Key> {
    let row = &target.resource.row;
    let is_custom = target.resource.is_custom();
    is_custom.then(|| Key::new(GROUP, PLURAL, None, &format!("{}.{}", row.plural, row.group)))
}

/// What the definition said when the request began.
pub(super) fn of_kind(target: &Target) -> Ground {
    let key = definition_key(target);
    key.map(|key| stays(key, target.resource.defined)).into_iter().collect()
}

fn closing(target: &Target, name: &str) -> Fault {
    let why = "create not allowed while custom resource definition is terminating";
    Fault::forbidden(&target.plural(), name, why)
}

impl Registry {
    /// The ground of a new object; the error says why there is none.
    pub(super) fn ground(&self, review: &Review<'_>) -> Result<Ground, Fault> {
        let target = review.target;
        if target.resource.closing {
            return Err(closing(target, review.name));
        }
        let mut ground = of_kind(target);
        ground.extend(
            self.open_namespace(review)?
                .map(|found| stays(found.key, found.revision)),
        );
        Ok(ground)
    }

    /// One write, if its ground has not moved; `None`: it has, and nothing was stored.
    pub(super) async fn commit_upon(&self, ground: &Ground, write: Write) -> Result<Option<Revision>, Refused> {
        let own = write.key.clone();
        let mut batch = ground.clone();
        batch.push(write);
        match self.store.write(batch) {
            Err(WriteError::Conflict { key, .. }) if key != own => Ok(None),
            accepted => Self::answered(accepted).await.map(Some),
        }
    }

    /// Stores a new object upon its ground. If that moved, the object is judged by what is there now.
    pub(super) async fn commit_new(
        &self,
        review: &Review<'_>,
        mut ground: Ground,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<(crate::store::Value, Revision), Refused> {
        let mut target = review.target.clone();
        for _ in 0..TRIES {
            let stored = Self::fitting_form(&target.resource, object).map_err(Refused::Fault)?;
            let write = Write {
                key: target.key_of(review.name),
                expect: Expect::Revision(0),
                change: Change::Put(stored.clone()),
            };
            if let Some(revision) = self.commit_upon(&ground, write).await? {
                return Ok((stored, revision));
            }
            let namespace = self.open_namespace(review).map_err(Refused::Fault)?;
            ground = namespace
                .map(|found| stays(found.key, found.revision))
                .into_iter()
                .collect();
            if let Some(key) = definition_key(&target) {
                let found = self.definition_now(&target, &key, Some(review.name));
                let revision = match found.map_err(Refused::Fault)? {
                    Definition::Same(revision) => revision,
                    Definition::Renewed(revision, renewed) => {
                        target = *renewed;
                        schema::prune(&target.version.schema, object);
                        schema::default(&target.version.schema, object);
                        self.check_create(&target, object, review.name, warnings)
                            .map_err(Refused::Fault)?;
                        Self::settle(&target.resource, object);
                        revision
                    }
                };
                ground.push(stays(key, revision));
            }
        }
        let busy = Fault::conflict(&target.plural(), review.name, MOVED);
        Err(Refused::Fault(busy))
    }

    /// Stores a change of an object upon the definition of its kind. Whoever made it by other schemas makes it anew.
    pub(super) async fn commit_change(
        &self,
        target: &Target,
        entry: &Entry,
        change: Change,
    ) -> Result<Revision, Refused> {
        let mut ground = of_kind(target);
        for _ in 0..TRIES {
            let write = Write {
                key: entry.key.clone(),
                expect: Expect::Revision(entry.revision),
                change: change.clone(),
            };
            if let Some(revision) = self.commit_upon(&ground, write).await? {
                return Ok(revision);
            }
            let Some(key) = definition_key(target) else { break };
            match self.definition_now(target, &key, None).map_err(Refused::Fault)? {
                Definition::Same(revision) => ground = vec![stays(key, revision)],
                Definition::Renewed(..) => break,
            }
        }
        let conflict = Fault::conflict(&target.plural(), &target.name, MOVED);
        Err(Refused::Fault(conflict))
    }

    /// `new`: the name of an object that is to be made.
    fn definition_now(&self, target: &Target, key: &Key, new: Option<&str>) -> Result<Definition, Fault> {
        let gone = || Fault::new(404, "NotFound", "the server could not find the requested resource");
        let entry = self.store.head(key).ok_or_else(gone)?;
        let definition = object::decode(&entry)?;
        if target.resource.definition.as_deref() != Some(object::text(&definition, "uid")) {
            return Err(gone());
        }
        if let Some(name) = new.filter(|_| is_true(&definition, "Terminating")) {
            return Err(closing(target, name));
        }
        let row = &target.resource.row;
        let find = || self.catalog().find(&row.group, &row.plural).cloned().ok_or_else(gone);
        let mut served = find()?;
        if served.defined != entry.revision {
            // Who wrote it is about to have it served.
            self.serve_definition(key.name());
            served = find()?;
        }
        if served.shaped == target.resource.shaped {
            return Ok(Definition::Same(entry.revision));
        }
        let renewed = Target {
            resource: served.clone(),
            version: served.version(&target.version.name).ok_or_else(gone)?.clone(),
            ..target.clone()
        };
        Ok(Definition::Renewed(entry.revision, Box::new(renewed)))
    }
}
