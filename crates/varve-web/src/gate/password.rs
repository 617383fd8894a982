//! The password of the page: its hash in a file, and the attempts to log in with it.
//!
//! The file has one line, as the program `argon2` prints it:
//! `$argon2id$v=19$m=65536,t=3,p=1$SALT$HASH`, with salt and hash in Base64.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use parking_lot::Mutex;
use tokio::time::Instant;
use varve_content::{NewFile, PRIVATE};
use varve_world::Random;

/// The cost of a new hash: 64 MiB of memory, in KiB, and the number of passes.
const MEMORY_KIB: u32 = 64 << 10;
const PASSES: u32 = 3;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// The costs that are accepted, at most.
const MEMORY_KIB_MAX: u32 = 1 << 20;
const PASSES_MAX: u32 = 64;
const LANES_MAX: u32 = 64;
/// The size limit of the file.
const FILE_BYTES_MAX: u64 = 4096;
/// After this many wrong passwords in a row, each further one closes the login for a while.
const WRONG_COUNT_MAX: u32 = 5;
const CLOSED_TIME: Duration = Duration::from_secs(30);
/// A longer password is not even hashed.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;

/// The Argon2id hash of a password.
#[derive(Clone)]
pub struct PasswordHash {
    params: Params,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// Why there is no hash of a password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not the Argon2id hash of a password: `varve web-password` makes one", path.display())]
    Malformed { path: PathBuf },
    #[error("{} already exists", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the password has more than {PASSWORD_BYTES_MAX} bytes")]
    Long,
    #[error("the password is empty")]
    Empty,
    #[error("the password cannot be hashed: {0}")]
    Hash(argon2::Error),
    #[error("the system cannot supply random bytes")]
    Random(#[source] io::Error),
}

impl PasswordHash {
    /// Hashes a password.
    ///
    /// # Errors
    /// The password is empty or too long, or there is no memory.
    pub fn of(password: &str, random: &dyn Random) -> Result<Self, PasswordError> {
        match password.len() {
            0 => return Err(PasswordError::Empty),
            PASSWORD_BYTES_MAX.. => return Err(PasswordError::Long),
            _ => {}
        }
        let params = Params::new(MEMORY_KIB, PASSES, 1, Some(HASH_BYTES)).map_err(PasswordError::Hash)?;
        let mut salt = vec![0; SALT_BYTES];
        random.fill(&mut salt).map_err(PasswordError::Random)?;
        let hash = hashed(&params, password, &salt, HASH_BYTES).map_err(PasswordError::Hash)?;
        Ok(Self { params, salt, hash })
    }

    /// Reads the hash in a file.
    ///
    /// # Errors
    /// [`PasswordError::Read`] and [`PasswordError::Malformed`]
    pub fn read(path: &Path) -> Result<Self, PasswordError> {
        let mut text = String::new();
        fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|source| PasswordError::Read { path: path.into(), source })?;
        Self::parse(text.trim()).ok_or_else(|| PasswordError::Malformed { path: path.into() })
    }

    /// Writes the hash to a new file that only its owner may read.
    ///
    /// # Errors
    /// [`PasswordError::Exists`] and [`PasswordError::Write`]
    pub fn write_new(&self, path: &Path) -> Result<(), PasswordError> {
        let written = NewFile::write(path, PRIVATE, false, format!("{}\n", self.text()).as_bytes());
        written.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => PasswordError::Exists { path: path.into() },
            _ => PasswordError::Write { path: path.into(), source },
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("$argon2id$v=19$")?.split('$');
        let (costs, salt, hash) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let mut numbers = costs
            .split(',')
            .zip(["m=", "t=", "p="])
            .map(|(cost, name)| cost.strip_prefix(name)?.parse::<u32>().ok());
        let (memory, passes, lanes) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if memory > MEMORY_KIB_MAX || passes > PASSES_MAX || lanes > LANES_MAX {
            return None;
        }
        let (salt, hash) = (STANDARD_NO_PAD.decode(salt).ok()?, STANDARD_NO_PAD.decode(hash).ok()?);
        if salt.len() < 8 || !(16..=64).contains(&hash.len()) {
            return None;
        }
        let params = Params::new(memory, passes, lanes, Some(hash.len())).ok()?;
        Some(Self { params, salt, hash })
    }

    fn text(&self) -> String {
        let (salt, hash) = (STANDARD_NO_PAD.encode(&self.salt), STANDARD_NO_PAD.encode(&self.hash));
        let (memory, passes, lanes) = (self.params.m_cost(), self.params.t_cost(), self.params.p_cost());
        format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${hash}")
    }

    /// Reports whether this is the password. Takes time and memory, by design.
    fn is_of(&self, password: &str) -> bool {
        let found = hashed(&self.params, password, &self.salt, self.hash.len());
        // The hashes of both are compared, which takes the same time for all values.
        found.is_ok_and(|found| blake3::hash(&found) == blake3::hash(&self.hash))
    }
}

fn hashed(params: &Params, password: &str, salt: &[u8], bytes: usize) -> Result<Vec<u8>, argon2::Error> {
    let mut hash = vec![0; bytes];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    argon2.hash_password_into(password.as_bytes(), salt, &mut hash)?;
    Ok(hash)
}

/// The outcome of an attempt to log in with a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    Right,
    Wrong,
    /// There were too many wrong ones, or another one is being checked.
    Later,
}

/// Checks passwords, one at a time, and not many wrong ones.
pub(crate) struct PasswordLogin {
    hash: PasswordHash,
    attempts: Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    is_checking: bool,
    wrong_count: u32,
    closed_until: Option<Instant>,
}

impl PasswordLogin {
    pub(crate) fn new(hash: PasswordHash) -> Self {
        Self { hash, attempts: Mutex::default() }
    }

    /// Checks a password. Blocks for as long as hashing takes.
    pub(crate) fn attempt(&self, password: &str, now: Instant) -> Attempt {
        {
            let mut attempts = self.attempts.lock();
            let is_closed = attempts.closed_until.is_some_and(|until| until > now);
            if attempts.is_checking || is_closed {
                return Attempt::Later;
            }
            attempts.is_checking = true;
        }
        let is_right = (1..PASSWORD_BYTES_MAX).contains(&password.len()) && self.hash.is_of(password);
        let mut attempts = self.attempts.lock();
        attempts.is_checking = false;
        if is_right {
            *attempts = Attempts::default();
            return Attempt::Right;
        }
        attempts.wrong_count = attempts.wrong_count.saturating_add(1);
        if attempts.wrong_count >= WRONG_COUNT_MAX {
            attempts.closed_until = Some(now + CLOSED_TIME);
        }
        Attempt::Wrong
    }
}

#[cfg(test)]
mod tests {
    use varve_world::SeededRandom;

    use super::*;

    /// A hash that costs little.
    fn quick(password: &str) -> PasswordHash {
        let params = Params::new(8, 1, 1, Some(HASH_BYTES)).unwrap();
        let salt = vec![5; SALT_BYTES];
        let hash = hashed(&params, password, &salt, HASH_BYTES).unwrap();
        PasswordHash { params, salt, hash }
    }

    #[test]
    fn a_hash_is_written_once_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let made = PasswordHash::of("correct horse", &SeededRandom::new(1)).unwrap();
        assert!(made.text().starts_with("$argon2id$v=19$m=65536,t=3,p=1$"), "{}", made.text());
        made.write_new(&path).unwrap();
        let read = PasswordHash::read(&path).unwrap();
        assert!(read.is_of("correct horse") && !read.is_of("correct horse ") && !read.is_of(""));
        assert!(matches!(made.write_new(&path), Err(PasswordError::Exists { .. })));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(PasswordHash::of("", &SeededRandom::new(1)), Err(PasswordError::Empty)));
        let long = "x".repeat(PASSWORD_BYTES_MAX);
        assert!(matches!(PasswordHash::of(&long, &SeededRandom::new(1)), Err(PasswordError::Long)));
    }

    #[test]
    fn other_lines_are_no_hashes() {
        // Lines of other functions, versions and costs.
        let good = quick("secret").text();
        assert!(PasswordHash::parse(&good).is_some());
        for wrong in [
            "",
            "secret",
            &good.replace("argon2id", "argon2i"),
            &good.replace("v=19", "v=16"),
            &good.replace("m=8", "m=99999999"),
            &good.replace("t=1", "t=0"),
            &good.replace("p=1", "p=0"),
            &format!("{good}$x"),
            &good[..good.len() - 40],
        ] {
            assert!(PasswordHash::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn wrong_passwords_close_the_login_for_a_while() {
        let (login, now) = (PasswordLogin::new(quick("secret")), Instant::now());
        assert_eq!(login.attempt("secret", now), Attempt::Right);
        for _ in 0..WRONG_COUNT_MAX {
            assert_eq!(login.attempt("guess", now), Attempt::Wrong);
        }
        assert_eq!(login.attempt("secret", now), Attempt::Later);
        let later = now + CLOSED_TIME;
        assert_eq!(login.attempt("guess", later), Attempt::Wrong);
        assert_eq!(login.attempt("secret", later), Attempt::Later);
        let later = later + CLOSED_TIME;
        assert_eq!(login.attempt("secret", later), Attempt::Right);
        assert_eq!(login.attempt("guess", later), Attempt::Wrong);
        assert_eq!(login.attempt("secret", later), Attempt::Right);
    }
}
