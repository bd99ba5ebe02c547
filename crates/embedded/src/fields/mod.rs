//! Fields: who owns them, and how writes that name only some of them merge.
//!
//! Pure functions over values and schemas; the registry calls them for every write.
//!
//! - [`Set`]: paths of fields, written as FieldsV1.
//! - [`apply`]: server-side apply. [`track`]: what every other write does to `metadata.managedFields`.
//! - [`strategic_merge`], [`json_patch`], [`merge_patch`]: the other patches.
//!
//! Promise: for the same objects, schema and time the answers are those of the reference, texts included. No input
//! panics.

mod apply;
mod compare;
mod conflicts;
mod element;
mod fields_v1;
mod json_patch;
mod last_applied;
mod managed;
mod merge;
mod scale;
mod set;
mod shape;
mod strategic;
mod track;
mod validate;
mod walk;

pub use apply::{Apply, Refused, apply};
pub use conflicts::{Conflict, Conflicts};
pub use element::Element;
pub use fields_v1::NotFields;
pub use json_patch::{json_patch, merge_patch};
pub use managed::Operation;
pub use scale::{ApplyScale, apply_scale};
pub use set::Set;
pub use strategic::strategic_merge;
pub use track::{Track, keep_times, track};

use apply::same_but_managed;
use json_patch::rejected;
