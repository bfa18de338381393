//! The roots that protect paths from garbage collection: links, profiles, and temporary roots.

mod gc_roots;
mod profile;
mod temp_roots;

pub(crate) use gc_roots::{Candidate, FailedRoots, RootSearch};
pub use gc_roots::{
    FoundRoots, HiddenRoots, IndirectGcRoot, Root, RootPlace, RuntimeRoots, StaleRegistration,
    Unreadable, canon_path,
};
pub use profile::{FoundProfiles, Generation, GenerationSpec, Generations, Profile};
pub use temp_roots::{ProgramRoot, TempRoots};
pub(crate) use temp_roots::{SharedTempRoots, is_floe_roots_file};
