//! Lists the narinfos of a cache.

use floe_format::HashPart;
use floe_transfer::{CLOSURE_MAX, Cancel, Error};

use super::NARINFO_SUFFIX;
use crate::error::CacheError;
use crate::storage::{Folder, ListStorage, ListedObject};

/// Returns the names of all narinfos.
///
/// Errors: those of [`list_objects`].
pub(super) fn list_narinfos(
    list: &dyn ListStorage,
    of: (&str, &Cancel),
) -> Result<Vec<String>, Error> {
    let objects = list_objects(list, Folder::Top, of)?.into_iter();
    let names = objects.map(|object| object.name);
    Ok(names.filter(|name| is_narinfo_name(name)).collect())
}

/// Returns the objects of a folder: of the top those with a hash part, and of others all.
///
/// Errors: those of the storage; [`CacheError::List`] for a list without an end;
/// [`Error::Cancelled`].
pub(crate) fn list_objects(
    list: &dyn ListStorage,
    folder: Folder,
    (cache, cancel): (&str, &Cancel),
) -> Result<Vec<ListedObject>, Error> {
    let refuse = |reason: String| -> Error {
        let url = cache.to_owned();
        CacheError::List { url, reason }.into()
    };
    let kind = match folder {
        Folder::Top => "narinfos",
        _ => "objects",
    };
    // A narinfo may have a listing.
    let is_counted =
        |object: &&ListedObject| folder != Folder::Top || is_narinfo_name(&object.name);
    let is_wanted = |object: &ListedObject| folder != Folder::Top || has_hash_part(&object.name);
    let (mut objects, mut next, mut count) = (Vec::new(), None::<String>, 0);
    for _ in 0..PAGES_MAX {
        // A server may reply so fast that nothing waits.
        if cancel.is_raised() {
            return Err(Error::Cancelled);
        }
        let page = list.list_page(folder, next.as_deref(), cancel)?;
        count += page.objects.iter().filter(is_counted).count();
        objects.extend(page.objects.into_iter().filter(is_wanted));
        if count > OBJECTS_MAX {
            return Err(refuse(format!("it has more than {OBJECTS_MAX} {kind}")));
        }
        match page.next {
            None => return Ok(objects),
            same if same == next => {
                return Err(refuse("the server repeats a page of the list".into()));
            }
            other => next = other,
        }
    }
    Err(refuse(format!("its list has more than {PAGES_MAX} pages")))
}

/// Whether an object is a narinfo or a listing.
fn has_hash_part(name: &str) -> bool {
    let part = name.split_once('.').map(|(part, _)| part);
    part.and_then(HashPart::parse).is_some()
}

fn is_narinfo_name(name: &str) -> bool {
    let part = name.strip_suffix(NARINFO_SUFFIX);
    part.and_then(HashPart::parse).is_some()
}

/// The largest number of listed objects: the narinfos of the largest closure.
const OBJECTS_MAX: usize = CLOSURE_MAX;

/// The largest number of pages of a list: that of the largest closure, with ten other objects for
/// each narinfo.
const PAGES_MAX: usize = 10 * CLOSURE_MAX / 1000;

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::storage::ListPage;

    /// A list whose pages a function makes, from their numbers.
    #[derive(Debug)]
    struct Pages(Mutex<usize>, fn(usize) -> ListPage);

    impl ListStorage for Pages {
        fn list_page(&self, _: Folder, _: Option<&str>, _: &Cancel) -> Result<ListPage, Error> {
            let mut number = self.0.lock();
            *number += 1;
            Ok(self.1(*number))
        }
    }

    fn list(make: fn(usize) -> ListPage) -> (Result<Vec<String>, Error>, usize) {
        let pages = Pages(Mutex::new(0), make);
        let listed = list_narinfos(&pages, ("s3://team", &Cancel::default()));
        (listed, pages.0.into_inner())
    }

    fn page(name: String, next: Option<String>) -> ListPage {
        ListPage {
            objects: vec![ListedObject {
                name,
                len: Some(1),
                modified: None,
            }],
            next,
        }
    }

    #[test]
    fn other_objects_are_left_out() {
        let narinfo = "00000000000000000000000000000000.narinfo";
        let (listed, _) = list(|number| match number {
            1 => page("nix-cache-info".into(), Some("2".into())),
            _ => page("00000000000000000000000000000000.narinfo".into(), None),
        });
        assert_eq!(listed.unwrap(), [narinfo]);
    }

    #[test]
    fn lists_without_an_end_are_refused() {
        let (repeated, pages) = list(|_| page("a".into(), Some("same".into())));
        let repeated = repeated.unwrap_err().to_string();
        assert!(repeated.contains("repeats a page"), "{repeated}");
        assert_eq!(pages, 2);
        let (empty, pages) = list(|number| ListPage {
            objects: Vec::new(),
            next: Some(number.to_string()),
        });
        assert!(empty.unwrap_err().to_string().contains("pages"));
        assert_eq!(pages, PAGES_MAX);
    }

    #[test]
    fn cancellation_ends_a_list() {
        let cancel = Cancel::default();
        cancel.raise();
        let pages = Pages(Mutex::new(0), |_| page("a".into(), None));
        let listed = list_narinfos(&pages, ("s3://team", &cancel));
        assert!(matches!(listed, Err(Error::Cancelled)));
    }
}
