//! The things that all stores of a copy share.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cancel::Cancel;
use crate::error::Error;
use crate::events::Events;

/// The things that the sources and the target of a copy share: cancellation, events, and services
/// such as the network. A service starts when a store first needs it, and ends with the session.
///
/// Drop the stores first: they cannot use a service that has ended.
pub struct Session {
    /// Ends all operations.
    pub cancel: Cancel,
    /// Receives all events.
    pub events: Events,
    /// The options of services, by the type of the service.
    options: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// The services in the order of their starts.
    started: Mutex<Vec<Arc<dyn Service>>>,
}

/// A service that the stores of a session share.
pub trait Service: Any + Debug + Send + Sync {
    /// The options of the service.
    type Options: Default + Send + Sync + 'static
    where
        Self: Sized;

    /// Starts the service.
    fn start(options: &Self::Options, session: &Session) -> Result<Self, Error>
    where
        Self: Sized;

    /// Ends the service, and waits for its threads.
    fn shut_down(&self);
}

impl Session {
    /// Makes a session without services.
    pub fn new(cancel: Cancel, events: Events) -> Session {
        Session {
            cancel,
            events,
            options: HashMap::new(),
            started: Mutex::default(),
        }
    }

    /// Sets the options of a service. Without them, it starts with the default options.
    pub fn with_options<S: Service>(mut self, options: S::Options) -> Session {
        self.options.insert(TypeId::of::<S>(), Box::new(options));
        self
    }

    /// Returns a service. Starts it if it has not started yet.
    ///
    /// Errors: those of [`Service::start`].
    pub fn service<S: Service>(&self) -> Result<Arc<S>, Error> {
        if let Some(service) = find(&self.started.lock()) {
            return Ok(service);
        }
        // The lock is free, because the start of a service may need another service.
        let options = self.options.get(&TypeId::of::<S>());
        let service = match options.and_then(|options| options.downcast_ref()) {
            Some(options) => S::start(options, self)?,
            None => S::start(&S::Options::default(), self)?,
        };
        let mut started = self.started.lock();
        // Another thread may have started it meanwhile, but the stores of a copy open one
        // after the other.
        if let Some(earlier) = find(&started) {
            drop(started);
            service.shut_down();
            return Ok(earlier);
        }
        let service = Arc::new(service);
        started.push(service.clone());
        Ok(service)
    }
}

/// Finds the service of a type.
fn find<S: Service>(started: &[Arc<dyn Service>]) -> Option<Arc<S>> {
    started.iter().find_map(|service| {
        let service: Arc<dyn Any + Send + Sync> = service.clone();
        service.downcast().ok()
    })
}

impl Default for Session {
    fn default() -> Session {
        Session::new(Cancel::default(), Events::default())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let started = std::mem::take(&mut *self.started.lock());
        // A service may use those that started before it.
        for service in started.iter().rev() {
            service.shut_down();
        }
    }
}

impl Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("started", &self.started.lock())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A service that counts the services that have ended.
    #[derive(Debug)]
    struct Counted {
        ended: Arc<AtomicUsize>,
        /// The number of services that ended before this one.
        place: AtomicUsize,
    }

    impl Service for Counted {
        type Options = Arc<AtomicUsize>;

        fn start(ended: &Arc<AtomicUsize>, _: &Session) -> Result<Counted, Error> {
            Ok(Counted {
                ended: ended.clone(),
                place: AtomicUsize::new(usize::MAX),
            })
        }

        fn shut_down(&self) {
            let place = self.ended.fetch_add(1, Ordering::Relaxed);
            self.place.store(place, Ordering::Relaxed);
        }
    }

    /// A service that needs another one.
    #[derive(Debug)]
    struct Dependent(Arc<Counted>);

    impl Service for Dependent {
        type Options = bool;

        fn start(is_broken: &bool, session: &Session) -> Result<Dependent, Error> {
            if *is_broken {
                return Err(Error::NoSources);
            }
            session.service().map(Dependent)
        }

        fn shut_down(&self) {
            assert_eq!(self.0.place.load(Ordering::Relaxed), usize::MAX);
            self.0.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn service_starts_once_and_ends_after_its_dependents() {
        let ended = Arc::<AtomicUsize>::default();
        let session = Session::default().with_options::<Counted>(ended.clone());
        let dependent = session.service::<Dependent>().unwrap();
        let counted = session.service::<Counted>().unwrap();
        assert!(Arc::ptr_eq(&counted, &dependent.0));
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(session);
        assert_eq!(counted.place.load(Ordering::Relaxed), 1);
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn failed_start_is_reported_and_tried_again() {
        let session = Session::default().with_options::<Dependent>(true);
        for _ in 0..2 {
            let error = session.service::<Dependent>().unwrap_err();
            assert!(matches!(error, Error::NoSources), "{error}");
        }
        assert!(session.started.lock().is_empty());
    }
}
