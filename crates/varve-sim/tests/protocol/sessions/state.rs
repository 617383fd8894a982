//! The state of the store: its sessions, its log, and the records that all sessions see.

/// The most push sessions of a model.
pub const PUSH_MAX: usize = 3;
/// The most exclusive sessions of a model, and so the greatest epoch.
pub const EXCLUSIVE_MAX: usize = 2;
/// The leaves below the pointer block. Each lies in an old arena of its own.
pub const LEAVES_MAX: usize = 2;

/// A set of arenas: bits 0 and 1 are the old arenas of the leaves, bit 2 the arena that stays, and
/// bit 3 and the following ones the arenas of the push sessions.
pub type Arenas = u8;
/// A set of push sessions, one bit each.
pub type Pushes = u8;

/// The arena that stays: it holds the pointer block of the old snapshot.
pub const STAYS: Arenas = 1 << LEAVES_MAX;

/// The arena of a push session.
pub const fn arena_of(push: usize) -> Arenas {
    STAYS << 1 << push
}

/// The position of a push session between two of its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PushStep {
    #[default]
    New,
    /// It has read a statement and is not registered: only without the rule about the order.
    ReadFirst,
    Registered,
    Read,
    Announced,
    /// It has found no pointer block, and looks for this leaf.
    NeedsLeaf(u8),
    NeedsPointer,
    HasTree,
    RootPut,
    Acknowledged,
    Ended,
    Failed,
}

/// A session that adds a snapshot. The snapshot is one pointer block over all leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Push {
    pub step: PushStep,
    /// The statement that it has read, until its tree is complete.
    pub statement: Statement,
    /// The epoch that it has announced.
    pub epoch: Option<u8>,
    pub registered: bool,
    pub closed: bool,
    /// The leaves that its arena holds, one bit each.
    pub leaves: u8,
    /// Its arena holds the pointer block.
    pub pointer: bool,
    /// Its arena holds its root.
    pub root: bool,
    /// The generation of its arena.
    pub generation: u8,
}

impl Push {
    /// Its record says that it has ended.
    pub fn is_ended(&self) -> bool {
        self.step == PushStep::Ended
    }

    /// It may still write, as far as others know.
    pub fn is_open(&self) -> bool {
        self.registered && !self.closed && !self.is_ended()
    }

    /// Its snapshot was acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        matches!(self.step, PushStep::Acknowledged | PushStep::Ended)
    }
}

/// The position of an exclusive session between two of its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExclusiveStep {
    #[default]
    New,
    Claimed,
    Marked,
    Proposed,
    Waiting,
    MarkedAgain,
    RootWritten,
    /// Its final statement is published before its root: only without the rule about the order.
    StatementFirst,
    Final,
    Finished,
    FoldRead,
    FoldRootWritten,
    FoldPublished,
    /// It has reported success to its user.
    Reported,
    Stopped,
}

/// A collector or a fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exclusive {
    pub step: ExclusiveStep,
    pub epoch: u8,
    /// The statement that it is going to publish, or has published last.
    pub statement: Statement,
    /// A snapshot that its marks have found leads to the blocks.
    pub live: bool,
    /// The old snapshot is gone in the catalog that it has read.
    pub gone: bool,
    /// The push sessions whose snapshots are gone in this catalog.
    pub forgotten: Pushes,
    /// The dying arenas that it still has to rewrite.
    pub remaining: Arenas,
}

/// The part of a signed statement that sessions act on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Statement {
    pub epoch: u8,
    pub dying: Arenas,
    /// The arenas with a pointer block that the author has read.
    pub covered: Arenas,
    /// The covered arenas with a pointer block that counts as absent.
    pub barren: Arenas,
    /// The sessions whose roots do not count.
    pub void: Pushes,
    /// The closed sessions that the author has listed.
    pub judged: Pushes,
}

/// A root with the lists of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FinalRoot {
    pub void: Pushes,
    /// The old snapshot is gone.
    pub gone: bool,
    /// The push sessions whose snapshots are gone.
    pub forgotten: Pushes,
}

/// The statements of one epoch, in the order in which their author publishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Proposed,
    Final,
    Finished,
}

/// An arena of the time before the sessions. It holds one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OldArena {
    pub generation: u8,
    pub leaf: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub pushes: [Push; PUSH_MAX],
    pub exclusives: [Exclusive; EXCLUSIVE_MAX],
    /// The published statements by epoch and kind.
    pub statements: [[Option<Statement>; 3]; EXCLUSIVE_MAX + 1],
    /// The final roots by epoch.
    pub roots: [Option<FinalRoot>; EXCLUSIVE_MAX + 1],
    /// The greatest epoch that is claimed.
    pub claimed: u8,
    pub old: [OldArena; LEAVES_MAX],
}

impl State {
    /// A store with one finished collection, of epoch 0. `gone` decides whether the old snapshot
    /// is listed.
    pub fn new(gone: bool) -> Self {
        // No list has the pointer block as barren: if it is dead, it died after the collection.
        let first = Statement { covered: STAYS, ..Statement::default() };
        let mut state = Self {
            pushes: [Push::default(); PUSH_MAX],
            exclusives: [Exclusive::default(); EXCLUSIVE_MAX],
            statements: [[None; 3]; EXCLUSIVE_MAX + 1],
            roots: [None; EXCLUSIVE_MAX + 1],
            claimed: 0,
            old: [OldArena { generation: 0, leaf: true }; LEAVES_MAX],
        };
        state.statements[0][Kind::Finished as usize] = Some(first);
        state.roots[0] = Some(FinalRoot { void: 0, gone, forgotten: 0 });
        state
    }

    /// The statement that a session reads: the last one of the greatest epoch.
    pub fn newest_statement(&self) -> Statement {
        self.statements.iter().rev().flat_map(|kinds| kinds.iter().rev()).find_map(|one| *one).unwrap()
    }

    /// The final root of the greatest epoch.
    pub fn newest_root(&self) -> FinalRoot {
        self.roots.iter().rev().find_map(|one| *one).unwrap()
    }

    /// The epoch of the last finished collection.
    pub fn collected(&self) -> usize {
        self.statements.iter().rposition(|kinds| kinds[Kind::Finished as usize].is_some()).unwrap()
    }

    /// The dying arenas of all unfinished statements.
    pub fn unfinished_dying(&self) -> Arenas {
        let unfinished = &self.statements[self.collected() + 1..];
        unfinished.iter().flatten().flatten().fold(0, |all, one| all | one.dying)
    }

    /// The sessions that any final root calls void.
    pub fn void_in_roots(&self) -> Pushes {
        self.roots.iter().flatten().fold(0, |all, root| all | root.void)
    }

    /// The sessions that any statement or final root calls void.
    pub fn void(&self) -> Pushes {
        self.statements.iter().flatten().flatten().fold(self.void_in_roots(), |all, one| all | one.void)
    }

    /// The closed sessions that any final statement has listed.
    pub fn judged(&self) -> Pushes {
        self.statements.iter().flatten().flatten().fold(0, |all, one| all | one.judged)
    }

    /// All leaves can be read at some place.
    pub fn leaves_are_readable(&self) -> bool {
        let of_pushes = self.pushes.iter().fold(0, |all, push| all | push.leaves);
        (0..LEAVES_MAX).all(|leaf| self.old[leaf].leaf || of_pushes & 1 << leaf != 0)
    }
}
