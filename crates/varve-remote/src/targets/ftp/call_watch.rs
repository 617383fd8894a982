//! A limit for the time of a call of a library that blocks.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use varve_world::StopSignal;

use crate::attempt_error::AttemptError;
use crate::edge::{self, GRACE};
use crate::retry::retrying_target::RetryPolicy;

/// The open sockets of a connection.
pub(crate) type Sockets = Arc<Mutex<Vec<TcpStream>>>;

/// Limits the time of a call of a library that blocks. When the time is over, or shortly after the
/// caller was told to end, the sockets of the connection are shut down, and the call fails.
///
/// A time-out of each read is not enough: a server that sends one byte now and then is never silent
/// for long.
pub(crate) struct CallWatch {
    shared: Arc<(Mutex<WatchedCall>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    patience: RetryPolicy,
}

/// The time between two looks whether the caller still waits.
const STOP_LOOK: Duration = Duration::from_millis(100);

struct WatchedCall {
    until: Instant,
    is_done: bool,
    ended_by: Option<AttemptError>,
}

impl CallWatch {
    /// Begins to watch a call that moves this many bytes.
    pub fn begin(patience: RetryPolicy, bytes: u64, stop: StopSignal, sockets: Sockets) -> io::Result<Self> {
        let time = patience.time_for(bytes);
        let call = WatchedCall { until: edge::now() + time, is_done: false, ended_by: None };
        let shared = Arc::new((Mutex::new(call), Condvar::new()));
        let watched = Arc::clone(&shared);
        let thread = edge::spawn(move || watch_call(&watched, time, &stop, &sockets))?;
        Ok(Self { shared, thread: Some(thread), patience })
    }

    /// Grants the time in which the caller itself waits.
    pub fn pause(&self, pause: Duration) {
        self.shared.0.lock().until += pause;
    }

    /// Grants the time for bytes that have arrived.
    pub fn earn(&self, bytes: usize) {
        let earned = self.patience.time_at_least_rate(bytes as u64);
        let mut call = self.shared.0.lock();
        call.until = (call.until + earned).min(edge::now() + self.patience.silence_max);
    }

    /// Grants the time of a new call.
    pub fn restart(&self) {
        self.shared.0.lock().until = edge::now() + self.patience.silence_max;
    }

    /// Ends the watch. Returns why it has ended the call, if it has.
    pub fn end(mut self) -> Option<AttemptError> {
        self.stop();
        self.shared.0.lock().ended_by.take()
    }

    fn stop(&mut self) {
        self.shared.0.lock().is_done = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and ends at once.
            drop(thread.join());
        }
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

fn watch_call(shared: &(Mutex<WatchedCall>, Condvar), time: Duration, stop: &StopSignal, sockets: &Sockets) {
    let mut stopped_at = None;
    let mut call = shared.0.lock();
    let reason = loop {
        if call.is_done {
            return;
        }
        let now = edge::now();
        if now >= call.until {
            break edge::timed_out(time);
        }
        if stop.is_set() && now - *stopped_at.get_or_insert(now) >= GRACE {
            break AttemptError::passing("interrupted");
        }
        let pause = (call.until - now).min(STOP_LOOK);
        shared.1.wait_for(&mut call, pause);
    };
    call.ended_by = Some(reason);
    for socket in sockets.lock().drain(..) {
        // One that is closed already needs nothing.
        drop(socket.shutdown(Shutdown::Both));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_watched_call_ends_in_time_and_for_its_caller() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let patience = RetryPolicy {
            silence_max: Duration::from_millis(200),
            bytes_per_second_min: 1000,
            ..RetryPolicy::default()
        };
        let read = |stop: &StopSignal, watched: &dyn Fn(&CallWatch)| {
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let sockets: Sockets = Arc::new(Mutex::new(vec![stream.try_clone().unwrap()]));
            let watch = CallWatch::begin(patience, 0, stop.clone(), sockets).unwrap();
            watched(&watch);
            assert_eq!(io::Read::read(&mut stream, &mut [0]).unwrap_or(0), 0);
            watch.end().map(|error| format!("{error:?}")).unwrap_or_default()
        };
        let begun = edge::now();
        let stop = StopSignal::default();
        assert!(read(&stop, &|_| {}).contains("no answer within"));
        let earning = read(&stop, &|watch| {
            edge::sleep(Duration::from_millis(150));
            watch.earn(150);
            watch.pause(Duration::from_millis(100));
        });
        assert!(earning.contains("no answer within"), "{earning}");
        assert!(begun.elapsed() >= Duration::from_millis(200 + 300 + 100), "{:?}", begun.elapsed());
        let long = |watch: &CallWatch| watch.pause(Duration::from_secs(60));
        let stopped = StopSignal::default();
        stopped.set();
        assert!(read(&stopped, &long).contains("interrupted"));
        assert!(begun.elapsed() < Duration::from_secs(30));
        // A call that is done in time is not disturbed.
        let sockets: Sockets = Arc::default();
        assert!(CallWatch::begin(patience, 0, stop, sockets).unwrap().end().is_none());
    }
}
