use std::sync::Arc;
use std::sync::atomic::Ordering;

use varve_block::{BlockStore, GetError, contract};
use varve_proxy::{Cache, CacheCounts, LookAside};

use crate::behind::{Behind, bytes_of, data, name_of};

fn aside(behind: &Arc<Behind>, takes_writes: bool) -> Option<LookAside> {
    Some(LookAside { blocks: Arc::clone(behind) as _, takes_writes })
}

#[test]
fn a_cache_keeps_the_contract() {
    contract::check(&mut || Cache::new(Behind::new(), None, 1 << 20).unwrap());
    for takes_writes in [false, true] {
        contract::check(&mut || {
            Cache::new(Behind::new(), aside(&Behind::new(), takes_writes), 100_000).unwrap()
        });
    }
}

#[test]
fn a_look_aside_that_fails_or_lies_breaks_nothing() {
    contract::check(&mut || {
        let away = Behind::new();
        away.set_away(true);
        Cache::new(Behind::new(), aside(&away, true), 0).unwrap()
    });
    contract::check(&mut || {
        let liar = Behind::new();
        liar.lies.store(true, Ordering::SeqCst);
        Cache::new(Behind::new(), aside(&liar, true), 0).unwrap()
    });
}

#[test]
fn what_is_near_is_not_fetched_from_afar() {
    let (source, near) = (Behind::new(), Behind::new());
    let bytes: Vec<Vec<u8>> = (0..10).map(|number| bytes_of(number, 1000)).collect();
    let names: Vec<_> = bytes.iter().map(|bytes| name_of(bytes)).collect();
    for bytes in &bytes {
        source.put(data(bytes)).unwrap();
    }
    let read_all = |cache: &Cache| {
        for (answer, bytes) in cache.get_batch(&names).into_iter().zip(&bytes) {
            assert_eq!(answer.unwrap(), *bytes);
        }
    };
    let cache = Cache::new(Arc::clone(&source) as _, aside(&near, false), 1 << 20).unwrap();
    read_all(&cache);
    read_all(&cache);
    assert_eq!(cache.counts(), CacheCounts { from_memory: 10, from_source: 10, ..CacheCounts::default() });
    // On another day the memory is empty, the look-aside is not, and the source is away.
    source.set_away(true);
    let cache = Cache::new(Arc::clone(&source) as _, aside(&near, false), 1 << 20).unwrap();
    read_all(&cache);
    assert_eq!(cache.counts(), CacheCounts { from_look_aside: 10, ..CacheCounts::default() });
    let unknown = name_of(b"never put");
    assert!(matches!(cache.get(&unknown), Err(GetError::Failed { .. })), "nobody knows whether it is there");
    assert!(cache.put(data(b"a block")).is_err(), "the source alone says what is stored");
}

#[test]
fn damage_in_the_look_aside_is_passed_over() {
    let (source, near) = (Behind::new(), Behind::new());
    let bytes = bytes_of(1, 1000);
    source.put(data(&bytes)).unwrap();
    near.put(data(&bytes)).unwrap();
    near.lies.store(true, Ordering::SeqCst);
    let cache = Cache::new(Arc::clone(&source) as _, aside(&near, false), 0).unwrap();
    assert_eq!(cache.get(&name_of(&bytes)).unwrap(), bytes);
    let counts = cache.counts();
    assert_eq!((counts.from_source, counts.look_aside_failures), (1, 1));
    // A source that lies has no other store behind it.
    near.lose(&name_of(&bytes));
    source.lies.store(true, Ordering::SeqCst);
    let liar = Cache::new(Arc::clone(&source) as _, None, 0).unwrap();
    assert!(matches!(liar.get(&name_of(&bytes)), Err(GetError::Damaged { .. })));
}

#[test]
fn a_look_aside_that_is_away_is_let_alone_for_a_while() {
    let (source, near) = (Behind::new(), Behind::new());
    let bytes = bytes_of(1, 1000);
    source.put(data(&bytes)).unwrap();
    near.set_away(true);
    let cache = Cache::new(Arc::clone(&source) as _, aside(&near, false), 0).unwrap();
    for _ in 0..1000 {
        cache.get(&name_of(&bytes)).unwrap();
    }
    let asked = near.gets.load(Ordering::SeqCst);
    assert!((2..20).contains(&asked), "{asked}");
    near.set_away(false);
    for _ in 0..5000 {
        cache.get(&name_of(&bytes)).unwrap();
    }
    assert!(near.names().contains(&name_of(&bytes)), "it is found to be back, and filled");
}

#[test]
fn writes_go_to_the_look_aside_if_told() {
    for takes_writes in [false, true] {
        let (source, near) = (Behind::new(), Behind::new());
        let cache = Cache::new(Arc::clone(&source) as _, aside(&near, takes_writes), 0).unwrap();
        cache.put(data(b"written")).unwrap();
        cache.sync().unwrap();
        assert!(source.has_durable(&name_of(b"written")));
        assert_eq!(near.has_durable(&name_of(b"written")), takes_writes);
    }
}
