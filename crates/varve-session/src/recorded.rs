//! A front end for tests. It records all reports, and takes its answers from a list.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use varve_store::RebuildProgress;
use varve_world::StopSignal;
use zeroize::Zeroizing;

use crate::notice::Notice;
use crate::replica_home::ReplicaReads;
use crate::secret::KeyOptions;
use crate::session::{CommandSession, SessionSettings};
use crate::user_interface::UserInterface;

#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) notices: Mutex<Vec<Notice>>,
    pub(crate) waits: Mutex<Vec<String>>,
    pub(crate) prompts: Mutex<Vec<String>>,
    answers: Mutex<VecDeque<&'static str>>,
}

impl Recorded {
    pub(crate) fn answering(answers: &[&'static str]) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.iter().copied().collect()), ..Self::default() })
    }

    /// Returns the session of a store, with a cache folder of its own beside the store.
    pub(crate) fn session(self: &Arc<Self>, store: &std::path::Path) -> CommandSession {
        let settings = SessionSettings {
            store: Ok(store.into()),
            key: KeyOptions::default(),
            wait: Duration::from_secs(60),
            replica_reads: ReplicaReads::Cached,
            cache: Some(store.with_extension("cache")),
            cache_bytes: 1 << 20,
            roots: None,
            requests_per_second: None,
        };
        CommandSession::new(settings, Arc::clone(self) as _)
    }
}

impl UserInterface for Recorded {
    fn notice(&self, notice: &Notice) {
        self.notices.lock().push(notice.clone());
    }

    fn waiting(&self, message: &str, _: Duration) {
        self.waits.lock().push(message.to_owned());
    }

    fn rebuilding(&self) -> Box<dyn FnMut(RebuildProgress)> {
        Box::new(|_| {})
    }

    fn can_ask(&self) -> bool {
        !self.answers.lock().is_empty()
    }

    fn ask(&self, prompt: &str) -> io::Result<Zeroizing<String>> {
        self.prompts.lock().push(prompt.to_owned());
        let answer = self.answers.lock().pop_front();
        answer.map(|answer| Zeroizing::new(answer.to_owned())).ok_or_else(|| io::Error::other("no answer"))
    }

    fn catch_signals(&self) -> io::Result<()> {
        Ok(())
    }

    fn stop_signal(&self) -> StopSignal {
        StopSignal::default()
    }
}
