//! Lists from a caller, from CBOR, or inside a flat message.

use std::fmt;
use std::slice;

use crate::cbor;
use crate::flat::{self, SLOT_LEN};
use crate::{DecodeError, Encode};

/// A list in a message.
///
/// Two lists are equal if their elements are equal, wherever they are stored.
#[derive(Clone)]
pub enum List<'a, T> {
    /// Borrowed from the creator of the message.
    Borrowed(&'a [T]),
    /// Owned by the message.
    Owned(Vec<T>),
    /// Inside the bytes of a flat message, and already checked.
    Flat(FlatList<'a>),
}

impl<'a, T: Encode<'a>> List<'a, T> {
    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            List::Borrowed(list) => list.len(),
            List::Owned(list) => list.len(),
            List::Flat(list) => list.count as usize,
        }
    }

    /// Returns whether the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements by value. They borrow from the same data as the list.
    #[inline]
    pub fn iter(&self) -> Iter<'_, 'a, T> {
        match self {
            List::Borrowed(list) => Iter::Slice(list.iter()),
            List::Owned(list) => Iter::Slice(list.iter()),
            List::Flat(list) => Iter::Flat(*list),
        }
    }

    /// Calls `call` with each element. Does not clone elements that are in memory.
    #[inline]
    fn visit(&self, mut call: impl FnMut(&T)) {
        match self {
            List::Borrowed(list) => list.iter().for_each(call),
            List::Owned(list) => list.iter().for_each(call),
            List::Flat(list) => Iter::Flat(*list).for_each(|element| call(&element)),
        }
    }
}

/// Reading and writing of lists, called by generated code.
impl<'a, T: Encode<'a>> List<'a, T> {
    /// Appends the list as CBOR.
    #[inline]
    pub fn write_cbor(&self, out: &mut Vec<u8>) {
        cbor::array(out, self.len() as u64);
        self.visit(|element| element.write_cbor(out));
    }

    /// Reads a list.
    #[inline]
    pub fn read_cbor(reader: &mut cbor::Reader<'a>) -> Result<List<'a, T>, DecodeError> {
        let count = reader.array(T::CBOR_MIN)?;
        if count == 0 {
            return Ok(List::default());
        }
        let mut list = Vec::with_capacity(count.min(ROOM_MAX));
        for _ in 0..count {
            list.push(T::read_cbor(reader)?);
        }
        Ok(List::Owned(list))
    }

    /// Appends the list, and writes its reference to position `at` in `out`, where there are zeros.
    /// The message begins at `start`.
    pub fn append_flat(&self, out: &mut Vec<u8>, start: usize, at: usize) {
        if self.is_empty() {
            return;
        }
        let first = start + (out.len() - start).next_multiple_of(SLOT_LEN);
        out.resize(first + self.len() * T::FLAT_LEN, 0);
        flat::put(out, at, flat::reference(first - start, self.len()));
        let mut fixed = first;
        self.visit(|element| {
            let mut end = out.len() - start;
            element.put_fixed(&mut out[fixed..fixed + T::FLAT_LEN], &mut end);
            element.append_contents(out);
            element.append_lists(out, start, fixed);
            fixed += T::FLAT_LEN;
        });
    }

    /// Checks all elements of a list in a flat message. Keeps none of them.
    #[inline]
    pub fn read_flat<const N: usize>(
        reader: &mut flat::Reader<'a>,
        fixed: &flat::Fixed<'a, N>,
        slot: usize,
    ) -> Result<List<'a, T>, DecodeError> {
        let Some((offset, count)) = reader.elements(fixed, slot, T::FLAT_LEN)? else {
            return Ok(List::default());
        };
        for i in 0..count as usize {
            T::read_flat(reader, offset as usize + i * T::FLAT_LEN)?;
        }
        Ok(List::Flat(FlatList {
            bytes: reader.bytes,
            offset,
            count,
        }))
    }
}

/// A list inside the bytes of a flat message. Iterating decodes its elements.
#[derive(Clone, Copy)]
pub struct FlatList<'a> {
    bytes: &'a [u8],
    offset: u32,
    count: u32,
}

/// An iterator over the elements of a list, by value.
pub enum Iter<'l, 'a, T> {
    /// Elements in memory.
    Slice(slice::Iter<'l, T>),
    /// Elements that are decoded on the way. The list contains the remaining ones.
    Flat(FlatList<'a>),
}

impl<'a, T: Encode<'a>> Iterator for Iter<'_, 'a, T> {
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
                // The same bytes were decoded without an error before, so the default is never
                // used. The iterator has no other way to report an error.
                Some(element.unwrap_or_default())
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = match self {
            Iter::Slice(list) => list.len(),
            Iter::Flat(list) => list.count as usize,
        };
        (len, Some(len))
    }
}

impl<'a, T: Encode<'a>> ExactSizeIterator for Iter<'_, 'a, T> {}

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

impl<'a, T: Encode<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Encode<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The capacity of a list before its first element is read. The count in the message is only a
/// claim, and an element needs more space in memory than in CBOR.
const ROOM_MAX: usize = 1024;
