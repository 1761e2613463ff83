//! POSIX access control lists as values: encoding, and agreement with a mode.
//!
//! The rules are those of POSIX.1e (withdrawn draft 17, section 23.1), as in `acl(5)` and Linux's
//! `fs/posix_acl.c`. The encoding is that of the `system.posix_acl_*` attributes
//! (`linux/posix_acl_xattr.h`):
//!
//! ```text
//! version: u32 = 2     then for each entry  tag: u16  permissions: u16  id: u32    (little-endian)
//! ```

use super::error::FsError;

/// Extended attribute with a node's own list.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Extended attribute with the list that new nodes in a directory inherit.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 8;
/// ID of entries that need none.
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Subject of an entry. Tags are in this order in a list, IDs in any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Other,
}

impl Tag {
    fn decode(tag: u16, id: u32) -> Option<Tag> {
        Some(match tag {
            USER_OBJ => Tag::Owner,
            USER if id != NO_ID => Tag::User(id),
            GROUP_OBJ => Tag::OwningGroup,
            GROUP if id != NO_ID => Tag::Group(id),
            MASK => Tag::Mask,
            OTHER => Tag::Other,
            _ => return None,
        })
    }

    fn encode(self) -> (u16, u32) {
        match self {
            Tag::Owner => (USER_OBJ, NO_ID),
            Tag::User(id) => (USER, id),
            Tag::OwningGroup => (GROUP_OBJ, NO_ID),
            Tag::Group(id) => (GROUP, id),
            Tag::Mask => (MASK, NO_ID),
            Tag::Other => (OTHER, NO_ID),
        }
    }

    fn kind(self) -> u16 {
        self.encode().0
    }
}

/// Valid access control list.
///
/// It has the three entries of a mode, each once, in order. It has a mask if there are entries for
/// further users or groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acl {
    /// Entries with their three permission bits.
    entries: Vec<(Tag, u16)>,
}

impl Acl {
    /// Decodes an attribute's value.
    ///
    /// `None` for a list without entries, which removes the list.
    pub(crate) fn decode(value: &[u8]) -> Result<Option<Acl>, FsError> {
        let (version, entries) = value
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(FsError::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(FsError::Unsupported);
        }
        let (entries, []) = entries.as_chunks::<ENTRY_LEN>() else {
            return Err(FsError::Invalid);
        };
        if entries.is_empty() {
            return Ok(None);
        }
        let entries: Option<Vec<(Tag, u16)>> = entries
            .iter()
            .map(|[t0, t1, p0, p1, i0, i1, i2, i3]| {
                let tag = Tag::decode(
                    u16::from_le_bytes([*t0, *t1]),
                    u32::from_le_bytes([*i0, *i1, *i2, *i3]),
                )?;
                let perm = u16::from_le_bytes([*p0, *p1]);
                (perm <= 0o7).then_some((tag, perm))
            })
            .collect();
        let acl = Acl {
            entries: entries.ok_or(FsError::Invalid)?,
        };
        if acl.is_valid() {
            Ok(Some(acl))
        } else {
            Err(FsError::Invalid)
        }
    }

    fn is_valid(&self) -> bool {
        let count = |kind| {
            self.entries
                .iter()
                .filter(|(tag, _)| tag.kind() == kind)
                .count()
        };
        let is_ordered = self.entries.is_sorted_by_key(|(tag, _)| tag.kind());
        let needs_mask = count(USER) + count(GROUP) > 0;
        is_ordered
            && [USER_OBJ, GROUP_OBJ, OTHER]
                .iter()
                .all(|kind| count(*kind) == 1)
            && match count(MASK) {
                0 => !needs_mask,
                1 => true,
                _ => false,
            }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, perm) in &self.entries {
            let (tag, id) = tag.encode();
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// Returns whether a mode can express the list.
    pub(crate) fn is_mode_only(&self) -> bool {
        self.entries.len() == 3
    }

    /// Returns the nine permission bits of the corresponding mode.
    ///
    /// If there is a mask, it takes the place of the group's bits.
    pub(crate) fn mode(&self) -> u16 {
        let has_mask = self.has_mask();
        self.entries.iter().fold(0, |mode, (tag, perm)| match tag {
            Tag::Owner => mode | perm << 6,
            Tag::OwningGroup if !has_mask => mode | perm << 3,
            Tag::Mask => mode | perm << 3,
            Tag::Other => mode | perm,
            Tag::User(_) | Tag::OwningGroup | Tag::Group(_) => mode,
        })
    }

    /// Changes the list as chmod does.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        self.change_mode_entries(|_, bits| bits, mode);
    }

    /// Restricts a new node's list to the bits of `mode`.
    ///
    /// The node's mode is then [`Acl::mode`].
    pub(crate) fn narrow(&mut self, mode: u16) {
        self.change_mode_entries(|perm, bits| perm & bits, mode);
    }

    /// Changes the entries that a mode has, given three bits for each.
    fn change_mode_entries(&mut self, change: impl Fn(u16, u16) -> u16, mode: u16) {
        let has_mask = self.has_mask();
        for (tag, perm) in &mut self.entries {
            let shift = match tag {
                Tag::Owner => 6,
                Tag::OwningGroup if !has_mask => 3,
                Tag::Mask => 3,
                Tag::Other => 0,
                Tag::User(_) | Tag::OwningGroup | Tag::Group(_) => continue,
            };
            *perm = change(*perm, mode >> shift & 0o7);
        }
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|(tag, _)| *tag == Tag::Mask)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An attribute's value, from tags, permissions and ids.
    pub(crate) fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// `u::rwx,u:1000:rw-,g::r-x,m::rwx,o::r--`
    pub(crate) fn extended() -> Vec<u8> {
        value(&[
            (USER_OBJ, 7, NO_ID),
            (USER, 6, 1000),
            (GROUP_OBJ, 5, NO_ID),
            (MASK, 7, NO_ID),
            (OTHER, 4, NO_ID),
        ])
    }

    /// The list that says what `mode` says.
    pub(crate) fn minimal(mode: u16) -> Vec<u8> {
        value(&[
            (USER_OBJ, mode >> 6 & 7, NO_ID),
            (GROUP_OBJ, mode >> 3 & 7, NO_ID),
            (OTHER, mode & 7, NO_ID),
        ])
    }

    fn decoded(value: &[u8]) -> Acl {
        Acl::decode(value).unwrap().unwrap()
    }

    #[test]
    fn a_list_comes_back_as_it_was_encoded() {
        for value in [extended(), minimal(0o640)] {
            assert_eq!(decoded(&value).encode(), value);
        }
        assert_eq!(Acl::decode(&value(&[])).unwrap(), None);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let (owner, group, other) = (
            (USER_OBJ, 7, NO_ID),
            (GROUP_OBJ, 7, NO_ID),
            (OTHER, 7, NO_ID),
        );
        let (user, mask) = ((USER, 7, 5), (MASK, 7, NO_ID));
        let wrong: [(&str, Vec<u8>); 12] = [
            ("too short", vec![2, 0, 0]),
            ("half an entry", extended()[..16].to_vec()),
            ("no owner", value(&[group, other])),
            ("no group", value(&[owner, other])),
            ("nobody else", value(&[owner, group])),
            ("two owners", value(&[owner, owner, group, other])),
            ("two masks", value(&[owner, user, group, mask, mask, other])),
            ("a user and no mask", value(&[owner, user, group, other])),
            ("out of order", value(&[owner, group, user, mask, other])),
            (
                "a tag that is none",
                value(&[owner, group, (0x40, 7, NO_ID)]),
            ),
            (
                "permissions that are none",
                value(&[(USER_OBJ, 8, NO_ID), group, other]),
            ),
            (
                "a user that is none",
                value(&[owner, (USER, 7, NO_ID), group, mask, other]),
            ),
        ];
        for (what, value) in wrong {
            assert!(
                matches!(Acl::decode(&value), Err(FsError::Invalid)),
                "{what}"
            );
        }
        let mut newer = minimal(0o777);
        newer[0] = 3;
        assert!(matches!(Acl::decode(&newer), Err(FsError::Unsupported)));
    }

    #[test]
    fn the_mask_stands_in_the_groups_place() {
        let mut acl = decoded(&extended());
        assert_eq!(acl.mode(), 0o774);
        assert!(!acl.is_mode_only());
        acl.set_mode(0o610);
        let expected = value(&[
            (USER_OBJ, 6, NO_ID),
            (USER, 6, 1000),
            (GROUP_OBJ, 5, NO_ID),
            (MASK, 1, NO_ID),
            (OTHER, 0, NO_ID),
        ]);
        assert_eq!(acl.encode(), expected);
        assert_eq!(acl.mode(), 0o610);
    }

    #[test]
    fn a_new_node_gets_no_more_than_its_mode_grants() {
        let mut acl = decoded(&extended());
        acl.narrow(0o640);
        assert_eq!(acl.mode(), 0o640);
        let expected = value(&[
            (USER_OBJ, 6, NO_ID),
            (USER, 6, 1000),
            (GROUP_OBJ, 5, NO_ID),
            (MASK, 4, NO_ID),
            (OTHER, 0, NO_ID),
        ]);
        assert_eq!(acl.encode(), expected);

        let mut acl = decoded(&minimal(0o750));
        assert!(acl.is_mode_only());
        acl.narrow(0o666);
        assert_eq!(acl.mode(), 0o640);
    }
}
