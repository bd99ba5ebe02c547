//! A model of an API server with its whole history, and of watches that lag behind it.
//!
//! Honest in the sense of the simulator's P1: order within one type's stream is kept, streams of different types overtake
//! one another, a list is a quorum read (it shows everything that was stored before it was asked for). The one thing it
//! does besides is [`World::restore`]: somebody brings etcd back from a backup.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::{DynamicObject, TypeMeta};
use serde_json::json;
use usher_engine::{ObjectKey, Text};
use usher_operator::record::{ApiType, Meta, Record};
use usher_operator::view::Event;

/// The two types of this world: 0 is listed first, and its objects may name owners among 1.
pub const TYPES: [ApiType; 2] = [api_type("Child", "children"), api_type("Parent", "parents")];

const fn api_type(kind: &'static str, plural: &'static str) -> ApiType {
    ApiType {
        group: "test.usher.dev",
        version: "v1",
        kind,
        plural,
    }
}

/// What the view keeps of an object of type `T`.
#[derive(Debug, Clone, PartialEq)]
pub struct Thing<const T: usize> {
    pub meta: Meta,
    pub value: u64,
    pub groups: Vec<Text>,
}

impl<const T: usize> Record for Thing<T> {
    const TYPE: ApiType = TYPES[T];

    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String> {
        let spec = &object.data["spec"];
        let groups = spec["groups"].as_array().ok_or("spec.groups is no list")?;
        Ok(Self {
            meta,
            value: spec["value"].as_u64().ok_or("spec.value is no number")?,
            groups: groups.iter().filter_map(|g| g.as_str()).map(Text::from).collect(),
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// What somebody writes into an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub value: u64,
    pub groups: Vec<&'static str>,
    /// Nonsense otherwise.
    pub readable: bool,
}

/// One version of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub of: usize,
    pub key: ObjectKey,
    pub uid: u64,
    pub revision: u64,
    pub owner: Option<(ObjectKey, u64)>,
    pub content: Content,
}

impl Object {
    pub fn uid(&self) -> String {
        format!("uid-{}", self.uid)
    }

    pub fn dynamic(&self) -> Box<DynamicObject> {
        let value = if self.content.readable {
            json!(self.content.value)
        } else {
            json!("nonsense")
        };
        let owner = self.owner.as_ref().map(|(key, uid)| OwnerReference {
            api_version: TYPES[1].api_version(),
            kind: TYPES[1].kind.into(),
            name: key.name().into(),
            uid: format!("uid-{uid}"),
            ..OwnerReference::default()
        });
        Box::new(DynamicObject {
            types: Some(TypeMeta {
                api_version: TYPES[self.of].api_version(),
                kind: TYPES[self.of].kind.into(),
            }),
            metadata: ObjectMeta {
                namespace: Some(self.key.namespace().into()),
                name: Some(self.key.name().into()),
                uid: Some(self.uid()),
                resource_version: Some(self.revision.to_string()),
                creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data: json!({"spec": {"value": value, "groups": self.content.groups}}),
        })
    }
}

/// The server.
#[derive(Debug, Default)]
pub struct World {
    pub revision: u64,
    uids: u64,
    pub objects: BTreeMap<(usize, ObjectKey), Object>,
    /// Every change: the object as it became, or as it was last, with the deletion's revision.
    log: Vec<(Object, bool)>,
    /// How often it was restored.
    pub restored: u64,
    /// The highest revision of a future that never was. None of them is used again: where a revision could mean two
    /// things, no guard is worth anything, which is why etcd is restored with `--bump-revision`.
    lost: u64,
}

impl World {
    pub fn get(&self, of: usize, key: &ObjectKey) -> Option<&Object> {
        self.objects.get(&(of, key.clone()))
    }

    /// Creates an object, unless the name is taken. A child names the parent of its own name as owner, if there is one.
    pub fn create(&mut self, of: usize, key: &ObjectKey, content: Content) -> Option<u64> {
        if self.get(of, key).is_some() {
            return None;
        }
        self.uids += 1;
        let parent = self.get(1, key).filter(|_| of == 0);
        let object = Object {
            of,
            key: key.clone(),
            uid: self.uids,
            revision: 0,
            owner: parent.map(|parent| (parent.key.clone(), parent.uid)),
            content,
        };
        Some(self.store(object))
    }

    /// Changes an object; a write that says nothing new stores nothing, as on a real server.
    pub fn change(&mut self, of: usize, key: &ObjectKey, content: Content) -> Option<u64> {
        let mut object = self.get(of, key)?.clone();
        if object.content == content {
            return Some(object.revision);
        }
        object.content = content;
        Some(self.store(object))
    }

    pub fn delete(&mut self, of: usize, key: &ObjectKey) -> Option<u64> {
        let mut object = self.objects.remove(&(of, key.clone()))?;
        self.revision = self.revision.max(self.lost) + 1;
        object.revision = self.revision;
        self.log.push((object, true));
        Some(self.revision)
    }

    /// Back to how it was at `revision`; what came later never was.
    pub fn restore(&mut self, revision: u64) {
        self.lost = self.lost.max(self.revision);
        self.log.retain(|(object, _)| object.revision <= revision);
        self.objects = (0..TYPES.len()).flat_map(|of| self.at(of, revision)).collect();
        self.revision = revision;
        self.restored += 1;
    }

    /// The objects of a type at a revision.
    pub fn at(&self, of: usize, revision: u64) -> BTreeMap<(usize, ObjectKey), Object> {
        let mut state = BTreeMap::new();
        for (object, gone) in self.log.iter().filter(|(o, _)| o.of == of && o.revision <= revision) {
            let at = (of, object.key.clone());
            if *gone {
                state.remove(&at);
            } else {
                state.insert(at, object.clone());
            }
        }
        state
    }

    /// Whether an object of this uid exists now.
    pub fn lives(&self, uid: u64) -> bool {
        self.objects.values().any(|object| object.uid == uid)
    }

    fn store(&mut self, mut object: Object) -> u64 {
        self.revision = self.revision.max(self.lost) + 1;
        object.revision = self.revision;
        self.objects.insert((object.of, object.key.clone()), object.clone());
        self.log.push((object, false));
        self.revision
    }

    fn changes(&self, of: usize, after: u64, upto: u64) -> impl Iterator<Item = &(Object, bool)> {
        self.log
            .iter()
            .filter(move |(o, _)| o.of == of && o.revision > after && o.revision <= upto)
    }
}

/// What a watch tells, before it becomes an [`Event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Started,
    Listed(Object),
    Done(u64),
    Applied(Object),
    Deleted(Object),
    Bookmark(u64),
    Interrupted,
    Resumed,
}

impl Told {
    pub fn event(&self) -> Event {
        match self {
            Told::Started => Event::ListStarted,
            Told::Listed(object) => Event::Listed(object.dynamic()),
            Told::Done(revision) => Event::ListDone { revision: *revision },
            Told::Applied(object) => Event::Applied(object.dynamic()),
            Told::Deleted(object) => Event::Deleted(object.dynamic()),
            Told::Bookmark(revision) => Event::Bookmark { revision: *revision },
            Told::Interrupted => Event::Interrupted {
                at: Timestamp::UNIX_EPOCH,
            },
            Told::Resumed => Event::Resumed,
        }
    }
}

/// One type's watch: what it has been told of, and what is on the way.
#[derive(Debug)]
pub struct Stream {
    of: usize,
    /// Everything up to here was told, once there was a list.
    pub cursor: Option<u64>,
    /// The server's head when the list under way was asked for.
    asked: Option<u64>,
    pending: VecDeque<Told>,
    restored: u64,
}

impl Stream {
    pub fn new(of: usize) -> Self {
        Self {
            of,
            cursor: None,
            asked: None,
            pending: VecDeque::new(),
            restored: 0,
        }
    }

    /// Asks for a list, whatever was under way.
    pub fn relist(&mut self, world: &World) -> Told {
        self.pending.clear();
        self.asked = Some(world.revision);
        self.restored = world.restored;
        Told::Started
    }

    /// The server answers the list. A streaming list begins with what its cache has, which may be older than the request
    /// by `lag` revisions; the changes since follow before the list is complete.
    pub fn answer(&mut self, world: &World, lag: u64) {
        let Some(asked) = self.asked.filter(|_| self.pending.is_empty()) else {
            return;
        };
        let cache = world.revision.saturating_sub(lag);
        let complete = world.revision.max(asked);
        self.pending
            .extend(world.at(self.of, cache).into_values().map(Told::Listed));
        for (object, gone) in world.changes(self.of, cache, complete) {
            self.pending.push_back(if *gone {
                Told::Deleted(object.clone())
            } else {
                Told::Listed(object.clone())
            });
        }
        self.pending.push_back(Told::Done(complete));
    }

    /// The next thing told, if there is one. A stream that never had a list, or whose server was restored, asks for one.
    pub fn next(&mut self, world: &World) -> Option<Told> {
        if self.restored != world.restored || (self.cursor.is_none() && self.asked.is_none()) {
            return Some(self.relist(world));
        }
        if self.asked.is_some() {
            let told = self.pending.pop_front()?;
            if let Told::Done(revision) = told {
                (self.cursor, self.asked) = (Some(revision), None);
            }
            return Some(told);
        }
        let (object, gone) = world.changes(self.of, self.cursor?, u64::MAX).next()?;
        self.cursor = Some(object.revision);
        Some(if *gone {
            Told::Deleted(object.clone())
        } else {
            Told::Applied(object.clone())
        })
    }

    /// A bookmark, which only comes when nothing is on the way.
    pub fn bookmark(&mut self, world: &World) -> Option<Told> {
        let idle = self.restored == world.restored
            && self.asked.is_none()
            && world.changes(self.of, self.cursor?, u64::MAX).next().is_none();
        idle.then(|| {
            self.cursor = Some(world.revision);
            Told::Bookmark(world.revision)
        })
    }

    /// Whether everything there is has been told.
    pub fn up_to_date(&self, world: &World) -> bool {
        let told = |cursor| world.changes(self.of, cursor, u64::MAX).next().is_none();
        self.restored == world.restored && self.asked.is_none() && self.cursor.is_some_and(told)
    }
}
