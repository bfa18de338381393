//! Lists, as they come from a caller, from CBOR, or as they lie in a flat message.

use std::fmt;
use std::marker::PhantomData;
use std::slice;

use crate::{Part, flat};

/// A list in a message.
///
/// Two lists are equal if their elements are, wherever they lie.
pub enum List<'a, T> {
    /// Belongs to whoever made the message.
    Borrowed(&'a [T]),
    /// Belongs to the message.
    Owned(Vec<T>),
    /// Lies in the bytes of a flat message, and was checked there.
    Flat(FlatList<'a, T>),
}

impl<'a, T: Part<'a>> List<'a, T> {
    /// The number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            List::Borrowed(list) => list.len(),
            List::Owned(list) => list.len(),
            List::Flat(list) => list.len(),
        }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, each by value: they borrow from what the list borrows from.
    #[inline]
    pub fn iter(&self) -> Iter<'_, 'a, T> {
        match self {
            List::Borrowed(list) => Iter::Slice(list.iter()),
            List::Owned(list) => Iter::Slice(list.iter()),
            List::Flat(list) => Iter::Flat(*list),
        }
    }

    /// Calls with each element, without cloning those that are there already.
    #[inline]
    pub(crate) fn visit(&self, mut call: impl FnMut(&T)) {
        match self {
            List::Borrowed(list) => list.iter().for_each(call),
            List::Owned(list) => list.iter().for_each(call),
            List::Flat(list) => Iter::Flat(*list).for_each(|element| call(&element)),
        }
    }
}

/// A list that lies in the bytes of a flat message. Elements are read on the way.
pub struct FlatList<'a, T> {
    bytes: &'a [u8],
    offset: u32,
    count: u32,
    elements: PhantomData<T>,
}

impl<'a, T: Part<'a>> FlatList<'a, T> {
    /// The caller has read each element once and found it good.
    #[inline]
    pub(crate) fn checked(bytes: &'a [u8], offset: u32, count: u32) -> FlatList<'a, T> {
        FlatList {
            bytes,
            offset,
            count,
            elements: PhantomData,
        }
    }

    /// The number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The elements of a list, by value.
pub enum Iter<'l, 'a, T> {
    /// Of elements that are there already.
    Slice(slice::Iter<'l, T>),
    /// Of those that are read on the way; the list is what is left.
    Flat(FlatList<'a, T>),
}

impl<'a, T: Part<'a>> Iterator for Iter<'_, 'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match self {
            Iter::Slice(list) => list.next().cloned(),
            Iter::Flat(list) => {
                list.count = list.count.checked_sub(1)?;
                let mut reader = flat::Reader::again(list.bytes);
                let element = T::read_flat(&mut reader, list.offset as usize);
                list.offset += T::FLAT_LEN as u32;
                // The same bytes were read without an error when the message was decoded, so the
                // default is never taken. It is there because nothing else could be said here.
                Some(element.unwrap_or_default())
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = match self {
            Iter::Slice(list) => list.len(),
            Iter::Flat(list) => list.len(),
        };
        (len, Some(len))
    }
}

impl<'a, T: Part<'a>> ExactSizeIterator for Iter<'_, 'a, T> {}

impl<'l, 'a, T: Part<'a>> IntoIterator for &'l List<'a, T> {
    type Item = T;
    type IntoIter = Iter<'l, 'a, T>;

    fn into_iter(self) -> Iter<'l, 'a, T> {
        self.iter()
    }
}

impl<T> From<Vec<T>> for List<'_, T> {
    fn from(list: Vec<T>) -> Self {
        List::Owned(list)
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(list: &'a [T]) -> Self {
        List::Borrowed(list)
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for List<'a, T> {
    fn from(list: &'a [T; N]) -> Self {
        List::Borrowed(list)
    }
}

impl<T> FromIterator<T> for List<'_, T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        List::Owned(elements.into_iter().collect())
    }
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        List::Borrowed(&[])
    }
}

impl<T: Clone> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        match self {
            List::Borrowed(list) => List::Borrowed(list),
            List::Owned(list) => List::Owned(list.clone()),
            List::Flat(list) => List::Flat(*list),
        }
    }
}

impl<T> Clone for FlatList<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for FlatList<'_, T> {}

impl<'a, T: Part<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Part<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Part<'a> + fmt::Debug> fmt::Debug for FlatList<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(Iter::Flat(*self)).finish()
    }
}
