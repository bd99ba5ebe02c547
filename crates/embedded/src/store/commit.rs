//! The answer to a write: which revisions it was given, and a future of their being as durable as promised.

use futures::channel::oneshot;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::{Revision, StoreError};

/// A write that was accepted. In memory it is ready at its first poll (E2); on disk, after the commit it shares.
/// Dropping it does not undo the write.
#[derive(Debug)]
#[must_use = "the write may yet fail to reach the disk"]
pub struct Commit {
    revisions: Vec<Revision>,
    newest: Revision,
    waiting: Option<oneshot::Receiver<Result<(), StoreError>>>,
}

impl Commit {
    /// One that is done.
    pub(super) fn new(revisions: Vec<Revision>, newest: Revision) -> Commit {
        Commit {
            revisions,
            newest,
            waiting: None,
        }
    }

    pub(super) fn wait_for(&mut self, done: oneshot::Receiver<Result<(), StoreError>>) {
        self.waiting = Some(done);
    }

    /// The revision of each object of the batch after it, in the order of its writes. One that changed nothing has
    /// the revision it had.
    pub fn revisions(&self) -> &[Revision] {
        &self.revisions
    }

    /// Waits on this thread, for callers outside any runtime.
    pub fn wait(mut self) -> Result<Revision, StoreError> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl Future for Commit {
    /// The newest of its revisions.
    type Output = Result<Revision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let newest = self.newest;
        match &mut self.waiting {
            None => Poll::Ready(Ok(newest)),
            Some(waiting) => Pin::new(waiting).poll(context).map(|answer| match answer {
                Ok(result) => result.map(|()| newest),
                Err(oneshot::Canceled) => Err(StoreError::Closed),
            }),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
