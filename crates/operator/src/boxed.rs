//! Kinds whose types are not known: what lets one process run kinds of different types side by side.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::api::DynamicObject;
use prometheus_client::registry::Registry;
use usher_engine::ObjectKey;

use crate::error::Failure;
use crate::kind::{Kind, Outcome, Passed};
use crate::pass::{self, Pass, Preview};
use crate::queue::{Job, QueueConfig};
use crate::record::{self, ApiType, Unreadable};
use crate::run::Settings;
use crate::shared::Shared;
use crate::view::View;
use crate::window::Window;
use crate::written::Reader;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind whose types are not known at this point: what a kind's crate hands to the binary.
pub trait AnyKind: Send + Sync {
    /// The kind's name.
    fn name(&self) -> &'static str;
    /// The resource it plans for.
    fn resource(&self) -> ApiType;
    /// Whether an object can be read into the view; one that cannot is left out of it, and no plan is made for it.
    fn read(&self, object: &DynamicObject) -> Result<(), Unreadable>;
    #[doc(hidden)]
    fn queue(&self, settings: &Settings) -> (&'static str, QueueConfig);
    #[doc(hidden)]
    fn register(&self, view: &mut View);
    #[doc(hidden)]
    fn pass<'a>(&'a self, pass: PassInput<'a>) -> Boxed<'a, PassOutput>;
    /// A pass that did not come to its end.
    #[doc(hidden)]
    fn lost(&self, pass: PassInput<'_>, outcome: Outcome, took: Duration);
    #[doc(hidden)]
    fn measure(&self, registry: &mut Registry, window: &Window);
    #[doc(hidden)]
    fn preview<'a>(&'a self, pass: PreviewInput<'a>) -> Boxed<'a, Result<Option<Preview>, Failure>>;
}

/// Inside of [`AnyKind::pass`].
#[derive(Debug)]
pub struct PassInput<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) job: &'a Job<ObjectKey>,
}

/// Inside of [`AnyKind::pass`].
#[derive(Debug)]
pub struct PassOutput(pub(crate) pass::Ended);

/// Inside of [`AnyKind::preview`].
#[derive(Debug)]
pub struct PreviewInput<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) key: &'a ObjectKey,
}

struct Boxing<K>(K);

/// Makes a kind ready to be run beside others.
pub fn boxed<K: Kind>(kind: K) -> Box<dyn AnyKind> {
    Box::new(Boxing(kind))
}

impl<K: Kind> AnyKind for Boxing<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn resource(&self) -> ApiType {
        <K::Resource as crate::record::Record>::TYPE
    }

    fn read(&self, object: &DynamicObject) -> Result<(), Unreadable> {
        record::read::<K::Resource>(object).map(drop)
    }

    fn queue(&self, settings: &Settings) -> (&'static str, QueueConfig) {
        let passes_at_once = settings.passes_at_once.unwrap_or(K::PASSES_AT_ONCE);
        (
            K::QUEUE,
            QueueConfig {
                passes_at_once,
                ..settings.queue
            },
        )
    }

    fn register(&self, view: &mut View) {
        self.0.register(view);
    }

    fn pass<'a>(&'a self, input: PassInput<'a>) -> Boxed<'a, PassOutput> {
        Box::pin(async move { PassOutput(pass::run(&self.0, input.shared, input.job).await) })
    }

    fn lost(&self, input: PassInput<'_>, outcome: Outcome, took: Duration) {
        let passed = Passed::<K> {
            key: &input.job.key,
            outcome,
            whys: &input.job.whys,
            took,
            now: input.shared.clock.monotonic(),
            planned: None,
            reported: false,
        };
        input.shared.view(|view| self.0.passed(view, &passed));
    }

    fn measure(&self, registry: &mut Registry, window: &Window) {
        self.0.measure(registry, window);
    }

    fn preview<'a>(&'a self, input: PreviewInput<'a>) -> Boxed<'a, Result<Option<Preview>, Failure>> {
        Box::pin(async move {
            let reader = Reader {
                kind: K::NAME,
                key: input.key.clone(),
            };
            let hands = Pass::new(input.shared.clone(), reader);
            let Some(resource) = input.shared.view(|view| view.get::<K::Resource>(input.key).cloned()) else {
                return Ok(None);
            };
            let fetched = self.0.fetch(&hands, &resource).await?;
            let now = input.shared.clock.wall();
            Ok(input
                .shared
                .view(|view| pass::preview(&self.0, view, input.key, &fetched, now)))
        })
    }
}
