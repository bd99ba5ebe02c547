//! Many writes of one kind, slowly at first: when the first one fails, the others would too.

use std::future::Future;

use futures::future::join_all;

use crate::fault::Fault;

/// Does `work` for each of `items` in batches of 1, 2, 4, …, each batch at once, and stops after a batch in which one
/// failed. Gives back what was done, and the first failure.
pub(super) async fn slow_start<I, T, F>(items: Vec<I>, work: impl Fn(I) -> F) -> (Vec<T>, Result<(), Fault>)
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut items = items.into_iter();
    let mut done = Vec::new();
    let mut size = 1;
    loop {
        let batch: Vec<F> = items.by_ref().take(size).map(&work).collect();
        if batch.is_empty() {
            return (done, Ok(()));
        }
        let mut failure = None;
        for result in join_all(batch).await {
            match result {
                Ok(value) => done.push(value),
                Err(fault) => failure = failure.or(Some(fault)),
            }
        }
        if let Some(fault) = failure {
            return (done, Err(fault));
        }
        size *= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::FutureExt;

    use super::*;

    /// How many were tried when the one with this number fails.
    fn tried(count: usize, bad: usize) -> usize {
        let tried = RefCell::new(0);
        let (done, result) = slow_start((0..count).collect(), |item| {
            *tried.borrow_mut() += 1;
            async move {
                if item == bad {
                    Err(Fault::internal("no"))
                } else {
                    Ok(item)
                }
            }
        })
        .now_or_never()
        .unwrap();
        let tried = tried.into_inner();
        assert_eq!(result.is_err(), bad < count);
        assert_eq!(done.len(), tried - usize::from(bad < count));
        tried
    }

    #[test]
    fn c3_batches_double_and_the_one_that_fails_is_the_last() {
        assert_eq!(tried(100, 0), 1);
        assert_eq!(tried(100, 2), 3);
        assert_eq!(tried(100, 6), 7);
        assert_eq!(tried(100, 7), 15);
        assert_eq!(tried(100, 100), 100);
        assert_eq!(tried(0, 0), 0);
    }
}
