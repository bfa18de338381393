//! The knowledge of a connection about the login of its client.

use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use super::login::Login;
use crate::http::refusal::Refusal;

/// The login of a connection. `Debug` hides the credentials.
#[derive(Default)]
pub(crate) struct ConnectionLogin {
    /// The login that was accepted last.
    accepted: Option<Accepted>,
    /// Whether the current request has that login.
    is_current: bool,
    /// The name that a refused request has, for the log.
    refused_name: Option<String>,
    /// The result for the request that has waited for it.
    verdict: Option<Verdict>,
}

/// A login and the credentials that it was accepted for. The same credentials in the next request
/// need no further check.
struct Accepted {
    /// `None` if they are too long to be kept with an idle connection.
    field: Option<Box<str>>,
    generation: u64,
    login: Arc<Login>,
}

/// The result for the request at the beginning of the input of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The password is right, in this generation of the login file.
    Accepted(Arc<Login>, u64),
    Refused(Refusal),
}

impl ConnectionLogin {
    /// Sets the result for the request that waits.
    pub(crate) fn set_verdict(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
    }

    pub(super) fn take_verdict(&mut self) -> Option<Verdict> {
        self.verdict.take()
    }

    /// Returns the name in the current request: that of its login, or the one that was refused.
    pub(crate) fn user(&self) -> Option<&str> {
        let name = self.login().map(Login::name);
        name.or(self.refused_name.as_deref())
    }

    /// Forgets the names of the request before.
    pub(super) fn begin_request(&mut self) {
        self.is_current = false;
        self.refused_name = None;
    }

    /// Returns the login for credentials that were accepted before.
    pub(super) fn find(&self, field: &str, generation: u64) -> Option<&Arc<Login>> {
        let accepted = self.accepted.as_ref()?;
        let known = accepted.field.as_deref()?;
        let is_same: bool = known.as_bytes().ct_eq(field.as_bytes()).into();
        (is_same && accepted.generation == generation).then_some(&accepted.login)
    }

    /// Returns the login of the current request.
    pub(crate) fn login(&self) -> Option<&Login> {
        let accepted = self.accepted.as_ref().filter(|_| self.is_current);
        accepted.map(|accepted| &*accepted.login)
    }

    pub(super) fn accept(&mut self, field: &str, login: Arc<Login>, generation: u64) {
        self.accepted = Some(Accepted {
            field: (field.len() <= FIELD_LEN_MAX).then(|| field.into()),
            generation,
            login,
        });
    }

    /// Lets the current request have the login that was accepted last.
    pub(super) fn use_accepted(&mut self) {
        self.is_current = true;
    }

    pub(super) fn set_refused_name(&mut self, name: Option<String>) {
        self.refused_name = name;
    }
}

impl fmt::Debug for ConnectionLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user();
        let mut this = formatter.debug_struct("ConnectionLogin");
        this.field("user", &user).finish_non_exhaustive()
    }
}

/// The longest credentials that a connection keeps, in bytes. Those with a token have about 100.
const FIELD_LEN_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::super::secret_hash::SecretHash;
    use super::*;

    #[test]
    fn accepted_credentials_hold_for_their_generation() {
        let secret = SecretHash::of_token("floe_t");
        let login = Arc::new(Login::new("ci", secret).unwrap());
        let mut state = ConnectionLogin::default();
        state.accept("Bearer floe_t", login, 5);
        assert!(state.find("Bearer floe_t", 5).is_some());
        assert!(state.find("Bearer floe_t", 6).is_none());
        assert!(state.find("Bearer floe_", 5).is_none());
        assert_eq!(state.user(), None);
        state.use_accepted();
        assert_eq!(state.user(), Some("ci"));
        assert!(!format!("{state:?}").contains("floe_t"));
        state.begin_request();
        assert_eq!(state.user(), None);
    }

    #[test]
    fn long_credentials_are_not_kept() {
        let secret = SecretHash::of_token("floe_t");
        let login = Arc::new(Login::new("ci", secret).unwrap());
        let mut state = ConnectionLogin::default();
        let long = "x".repeat(FIELD_LEN_MAX + 1);
        state.accept(&long, login, 5);
        state.use_accepted();
        assert_eq!(state.user(), Some("ci"));
        assert!(state.find(&long, 5).is_none() && state.find("", 5).is_none());
    }
}
