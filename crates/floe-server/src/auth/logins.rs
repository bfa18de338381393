//! Decides about the requests of a server that needs logins.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use parking_lot::{Mutex, RwLock};
use ring::hmac;
use ring::rand::SystemRandom;

use super::client_id::ClientId;
use super::connection_login::{ConnectionLogin, Verdict};
use super::credentials::Credentials;
use super::login::{Login, NAME_LEN_MAX};
use super::login_file::LoginFile;
use super::login_table::LoginTable;
use super::scopes::{Scope, required_scopes};
use super::throttle::{FAILURES_MAX, Throttle};
use super::token::may_be_token;
use crate::config::Warn;
use crate::error::ServeError;
use crate::http::refusal::Refusal;
use crate::http::request::Request;
use crate::http::route::Route;
use crate::lru::LruCache;

/// The logins of a server, shared by all its threads.
pub(crate) struct Logins {
    path: PathBuf,
    /// The logins as they were read last.
    file: Mutex<LoginFile>,
    /// Whether clients without a login may read the cache.
    is_reading_public: AtomicBool,
    /// Whether those who may read may look at the paths of the store.
    are_readers_browsing: AtomicBool,
    current: RwLock<Generation>,
    /// The number of the current generation, which every request compares without a lock.
    generation: AtomicU64,
    /// The logins whose passwords were verified.
    verified: Mutex<LruCache<PasswordKey, (Arc<Login>, u64)>>,
    throttle: Mutex<Throttle>,
    /// Makes the keys of `verified`, so that they tell nothing about passwords.
    key: hmac::Key,
    warn: Warn,
    pub(crate) counters: Arc<LoginCounters>,
}

/// The logins since the last change.
#[derive(Clone, Debug)]
struct Generation {
    table: Arc<LoginTable>,
    number: u64,
}

/// The number of events since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct LoginCounters {
    /// Logins that were accepted. Further requests of a connection with the same login do not
    /// count.
    pub(crate) accepted: AtomicU64,
    /// Requests with wrong credentials.
    pub(crate) failed: AtomicU64,
    /// Requests that were refused because too many of their address had failed.
    pub(crate) throttled: AtomicU64,
    /// Connections that wait for a password to be verified, at this moment.
    pub(crate) waiting: AtomicU64,
    /// Attempts to read the login file again that have failed.
    pub(crate) reloads_failed: AtomicU64,
}

/// A keyed hash of a name and a password.
pub(crate) type PasswordKey = [u8; 32];

/// The decision about a request.
#[derive(Debug)]
pub(crate) enum Access {
    Granted,
    Refused(Refusal),
    /// The password has to be verified, which takes too long for a network thread.
    Verify(Box<PasswordCheck>),
}

/// A password that has to be verified. `Debug` hides it.
pub(crate) struct PasswordCheck {
    /// Equal for equal names and passwords.
    pub(crate) key: PasswordKey,
    name: String,
    password: Vec<u8>,
    against: Generation,
}

impl Logins {
    /// Reads the login file.
    ///
    /// Errors: [`ServeError`].
    pub(crate) fn open(path: &Path, warn: Warn) -> Result<Logins, ServeError> {
        let file = LoginFile::read(path)?;
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| ServeError::System {
            action: "make a random key",
            source: std::io::ErrorKind::Other.into(),
        })?;
        let logins = Logins {
            path: path.to_owned(),
            current: RwLock::new(Generation {
                table: Arc::new(LoginTable::new(&file)),
                number: 0,
            }),
            generation: AtomicU64::new(0),
            verified: Mutex::new(LruCache::new(VERIFIED_MAX)),
            throttle: Mutex::new(Throttle::new()),
            key,
            warn,
            counters: Arc::default(),
            file: Mutex::new(file.clone()),
            is_reading_public: AtomicBool::new(false),
            are_readers_browsing: AtomicBool::new(false),
        };
        logins.warn_of(&file);
        Ok(logins)
    }

    /// Sets whether those who may read may look at the paths of the store.
    pub(crate) fn set_browsing_readers(&self, are_browsing: bool) {
        self.are_readers_browsing
            .store(are_browsing, Ordering::Relaxed);
    }

    /// Sets whether clients without a login may read the cache.
    pub(crate) fn set_public_reading(&self, is_public: bool) {
        self.is_reading_public.store(is_public, Ordering::Relaxed);
    }

    /// Whether clients need a login to read the cache.
    pub(crate) fn are_needed_to_read(&self) -> bool {
        !self.is_reading_public.load(Ordering::Relaxed)
    }

    /// Reads the file again. If it has changed, or if the authorities of the clients' certificates
    /// have, each client must log in again. If the file is not valid, the logins stay as they are.
    ///
    /// Errors: [`ServeError`].
    pub(crate) fn reload(&self, has_new_authorities: bool) -> Result<(), ServeError> {
        let file =
            LoginFile::read(&self.path).inspect_err(|_| count(&self.counters.reloads_failed))?;
        self.warn_of(&file);
        let mut current = self.file.lock();
        if has_new_authorities || *current != file {
            self.begin_generation(Arc::new(LoginTable::new(&file)));
            *current = file;
        }
        Ok(())
    }

    /// Decides about a request. Does not wait.
    pub(crate) fn check(&self, request: &Request<'_>, route: &Route, client: Client<'_>) -> Access {
        let Client { state, from } = client;
        state.begin_request();
        let readers_browse = self.are_readers_browsing.load(Ordering::Relaxed);
        let scopes = required_scopes(request.method, route, readers_browse);
        if scopes.is_empty() {
            return Access::Granted;
        }
        let is_public = !self.are_needed_to_read() && scopes.contains(&Scope::Read);
        let Some(field) = request.authorization.map(|field| field.0) else {
            return if is_public {
                Access::Granted
            } else {
                Access::Refused(Refusal::LoginRequired)
            };
        };
        let generation = self.generation.load(Ordering::Acquire);
        if state.find(field, generation).is_none() {
            match self.identify(field, state, from) {
                Ok((login, generation)) => {
                    count(&self.counters.accepted);
                    state.accept(field, login, generation);
                }
                Err(access) => return access,
            }
        }
        state.use_accepted();
        match state.login() {
            Some(login) if login.expiry.is_some_and(|it| it.is_past(SystemTime::now())) => {
                Access::Refused(Refusal::LoginExpired)
            }
            Some(login) if !is_public && !login.scopes.has_any(scopes) => {
                Access::Refused(Refusal::MissingScope)
            }
            Some(_) => Access::Granted,
            None => Access::Refused(Refusal::LoginRequired),
        }
    }

    /// Verifies a password. Takes a fraction of a second.
    pub(crate) fn verify(&self, check: &PasswordCheck) -> Verdict {
        // Another connection may have had the same password in the meantime.
        let number = check.against.number;
        if let Some(login) = self.find_verified(&check.key, number) {
            return Verdict::Accepted(login, number);
        }
        let table = &check.against.table;
        match table.verify_password(&check.name, &check.password) {
            Some(login) => {
                let mut verified = self.verified.lock();
                verified.put(check.key, (login.clone(), number), 1);
                Verdict::Accepted(login, number)
            }
            None => {
                count(&self.counters.failed);
                Verdict::Refused(Refusal::LoginFailed)
            }
        }
    }

    /// Counts an attempt of an address before it is known to fail. Warns if the address fails too
    /// often.
    ///
    /// Errors: the address has to wait.
    pub(crate) fn count_attempt(
        &self,
        from: ClientId,
        name: Option<&str>,
        now: Instant,
    ) -> Result<(), Refusal> {
        let counted = self.throttle.lock().count_attempt(from, now);
        counted.map_err(|throttled| {
            count(&self.counters.throttled);
            if throttled.is_warning_due {
                self.warn_of_throttled(from, name);
            }
            Refusal::TooManyLogins
        })
    }

    /// Takes an attempt back that has succeeded.
    pub(crate) fn take_back(&self, from: ClientId) {
        self.throttle.lock().take_back(from);
    }

    /// Finds the login of credentials that the connection has not used before.
    fn identify(
        &self,
        field: &str,
        state: &mut ConnectionLogin,
        from: ClientId,
    ) -> Result<(Arc<Login>, u64), Access> {
        let verdict = state.take_verdict();
        let current = self.current();
        match verdict {
            Some(Verdict::Accepted(login, number)) if number == current.number => {
                return Ok((login, number));
            }
            Some(Verdict::Refused(refusal)) => {
                state.set_refused_name(refused_name(Credentials::parse(field).as_ref()));
                return Err(Access::Refused(refusal));
            }
            _ => {}
        }
        let credentials = Credentials::parse(field);
        if let Some(credentials) = &credentials {
            let secret = credentials.secret();
            if let Some(login) = current.table.find_token(secret) {
                return Ok((login.clone(), current.number));
            }
        }
        let logged = refused_name(credentials.as_ref());
        if let Some(Credentials::Basic { name, password }) = credentials
            && current.table.has_passwords()
        {
            let key = self.password_key(&name, &password);
            if let Some(login) = self.find_verified(&key, current.number) {
                return Ok((login, current.number));
            }
            return Err(Access::Verify(Box::new(PasswordCheck {
                key,
                name,
                password,
                against: current,
            })));
        }
        let counted = self.count_attempt(from, logged.as_deref(), Instant::now());
        state.set_refused_name(logged);
        Err(Access::Refused(match counted {
            Ok(()) => {
                count(&self.counters.failed);
                Refusal::LoginFailed
            }
            Err(refusal) => refusal,
        }))
    }

    fn find_verified(&self, key: &PasswordKey, generation: u64) -> Option<Arc<Login>> {
        let (login, number) = self.verified.lock().get(key)?;
        (number == generation).then_some(login)
    }

    fn password_key(&self, name: &str, password: &[u8]) -> PasswordKey {
        // A name has no colon, so no two pairs have the same bytes.
        let text = [name.as_bytes(), b":", password].concat();
        let mut key = PasswordKey::default();
        key.copy_from_slice(hmac::sign(&self.key, &text).as_ref());
        key
    }

    fn current(&self) -> Generation {
        self.current.read().clone()
    }

    fn begin_generation(&self, table: Arc<LoginTable>) {
        let mut current = self.current.write();
        current.number += 1;
        current.table = table;
        self.generation.store(current.number, Ordering::Release);
        *self.verified.lock() = LruCache::new(VERIFIED_MAX);
    }

    /// Warns of the logins that let no client in.
    fn warn_of(&self, file: &LoginFile) {
        let (path, now) = (self.path.display(), SystemTime::now());
        if file.logins().next().is_none() {
            (self.warn)(&format!("refusing all requests: {path} has no login"));
        }
        for login in file.logins() {
            if let Some(expiry) = login.expiry.filter(|expiry| expiry.is_past(now)) {
                let name = login.name();
                (self.warn)(&format!(
                    "refusing the login {name} of {path}: it has expired ({expiry})"
                ));
            }
        }
    }

    fn warn_of_throttled(&self, from: ClientId, name: Option<&str>) {
        let name = name.map(|name| format!(", the last one as {name:?}"));
        (self.warn)(&format!(
            "refusing further logins from {from} for a while: {FAILURES_MAX} attempts have \
             failed{}",
            name.unwrap_or_default()
        ));
    }
}

/// The connection that a request came on.
#[derive(Debug)]
pub(crate) struct Client<'c> {
    pub(crate) state: &'c mut ConnectionLogin,
    /// Whose failed attempts count together.
    pub(crate) from: ClientId,
}

impl PasswordCheck {
    /// Returns the name as a log may show it.
    pub(crate) fn logged_name(&self) -> Option<String> {
        logged_name(&self.name)
    }
}

impl fmt::Debug for PasswordCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PasswordCheck(…)")
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut this = formatter.debug_struct("Logins");
        this.field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the name in wrong credentials as a log may show it.
fn refused_name(credentials: Option<&Credentials>) -> Option<String> {
    match credentials {
        Some(Credentials::Basic { name, .. }) => logged_name(name),
        _ => None,
    }
}

/// Cuts a name, and leaves out a token that the client has sent as its name.
fn logged_name(name: &str) -> Option<String> {
    if may_be_token(name) {
        return None;
    }
    let mut end = name.len().min(NAME_LEN_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let shown = name.get(..end)?;
    Some(if end < name.len() {
        format!("{shown}...")
    } else {
        shown.to_owned()
    })
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How many verified passwords are remembered, about 1 MB.
const VERIFIED_MAX: usize = 8192;

#[cfg(test)]
mod tests;
