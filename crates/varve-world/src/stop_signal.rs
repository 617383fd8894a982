//! The request to end early. It wakes everybody who waits for something else.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A request to end early, such as by Ctrl-C. Clones share it, and it is never taken back.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_set: AtomicBool,
    /// The tasks to wake.
    tasks: Mutex<Vec<Waker>>,
    threads: Condvar,
}

impl StopSignal {
    /// Requests the end.
    pub fn set(&self) {
        let tasks = {
            let mut tasks = self.0.tasks.lock();
            self.0.is_set.store(true, Ordering::Release);
            std::mem::take(&mut *tasks)
        };
        self.0.threads.notify_all();
        tasks.into_iter().for_each(Waker::wake);
    }

    /// Reports whether the end was requested.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
    }

    /// Waits for the request, for at most `time`. Returns whether the end was requested.
    pub fn wait(&self, time: Duration) -> bool {
        let mut tasks = self.0.tasks.lock();
        if !self.is_set() {
            // A wait that ends too early is one more look for its caller.
            self.0.threads.wait_for(&mut tasks, time);
        }
        self.is_set()
    }

    /// Waits for the request as an asynchronous task.
    pub async fn requested(&self) {
        poll_fn(|context| {
            let mut tasks = self.0.tasks.lock();
            if self.is_set() {
                return Poll::Ready(());
            }
            if !tasks.iter().any(|task| task.will_wake(context.waker())) {
                tasks.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the request comes from another thread")]
    fn a_request_wakes_threads_at_once_and_stays() {
        let stop = StopSignal::default();
        assert!(!stop.wait(Duration::from_millis(1)));
        let begun = std::time::Instant::now();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| while !stop.wait(Duration::from_secs(60)) {});
            stop.clone().set();
            waiting.join().unwrap();
        });
        assert!(stop.is_set() && stop.wait(Duration::from_secs(60)));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[derive(Default)]
    struct CountedWakes(AtomicUsize);

    impl Wake for CountedWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_request_wakes_each_task_once() {
        let stop = StopSignal::default();
        let wakes = Arc::new(CountedWakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut requested = pin!(stop.requested());
        for _ in 0..3 {
            assert!(requested.as_mut().poll(&mut context).is_pending());
        }
        stop.set();
        stop.set();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(requested.as_mut().poll(&mut context).is_ready());
    }
}
