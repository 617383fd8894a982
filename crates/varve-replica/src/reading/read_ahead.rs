//! Threads that fetch what a reader in order will want next, while it works on what it has.
//!
//! A single request does not use a distant line, and the target waits while a reader decompresses.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use varve_log::ArenaId;

use crate::reading::arena_reader::ArenaReader;

/// The parts that are fetched at the same time, besides that of the reader.
const THREADS: usize = 2;

/// The threads of one replica. They end when they are idle and this is dropped.
pub(super) struct ReadAhead {
    places: SyncSender<(ArenaId, u64)>,
}

impl ReadAhead {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`io::Error`] if the system has no thread for it.
    pub(super) fn start(reader: &Arc<ArenaReader>) -> io::Result<Self> {
        let (places, wanted) = sync_channel(THREADS);
        let wanted = Arc::new(Mutex::new(wanted));
        for _ in 0..THREADS {
            let (reader, wanted) = (Arc::downgrade(reader), Arc::clone(&wanted));
            let thread = std::thread::Builder::new().name("varve-ahead".into());
            thread.spawn(move || fetch(&reader, &wanted))?;
        }
        Ok(Self { places })
    }

    /// Fetches what follows a place, unless it is known or all threads are busy.
    pub(super) fn go_on(&self, arena: ArenaId, place: u64) {
        for _ in 0..THREADS {
            let _ = self.places.try_send((arena, place));
        }
    }
}

fn fetch(reader: &Weak<ArenaReader>, wanted: &Mutex<Receiver<(ArenaId, u64)>>) {
    loop {
        let next = wanted.lock().recv();
        let Ok((arena, place)) = next else { return };
        let Some(reader) = reader.upgrade() else { return };
        reader.read_ahead(arena, place);
    }
}
