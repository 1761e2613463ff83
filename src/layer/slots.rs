//! Allocation of slots in a layer's data file.

use super::contents::SLOT_MAX;

/// Alignment of offsets and capacities, in bytes.
pub(super) const SLOT_MIN: u32 = 4096;

/// Capacities of slots, in bytes.
const CAPACITIES: [u32; 5] = [SLOT_MIN, 8192, 16384, 32768, SLOT_MAX as u32];

/// Maximum offset that the kernel supports.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Free slots of a data file.
#[derive(Debug)]
pub(super) struct SlotMap {
    /// Offsets of the free slots by capacity, as in [`CAPACITIES`].
    free: [Vec<u64>; CAPACITIES.len()],
    /// End of the part from which slots were ever allocated, in bytes.
    end: u64,
}

/// Slot that overlaps another one or is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadSlot {
    pub offset: u64,
}

impl SlotMap {
    pub(crate) fn new() -> SlotMap {
        SlotMap {
            free: [const { Vec::new() }; CAPACITIES.len()],
            end: 0,
        }
    }

    /// Builds the map of a file from its used slots.
    ///
    /// The slots are (offset, capacity). The second value has the gaps between them, as (offset,
    /// length).
    pub(crate) fn rebuild(
        mut taken: Vec<(u64, u32)>,
    ) -> Result<(SlotMap, Vec<(u64, u64)>), BadSlot> {
        taken.sort_unstable();
        let mut map = SlotMap::new();
        let mut gaps = Vec::new();
        for (offset, capacity) in taken {
            let end = offset.checked_add(u64::from(capacity));
            let is_sound =
                offset.is_multiple_of(u64::from(SLOT_MIN)) && CAPACITIES.contains(&capacity);
            match end {
                Some(end) if is_sound && offset >= map.end && end <= OFFSET_MAX => {
                    if offset > map.end {
                        gaps.push((map.end, offset - map.end));
                        map.add_gap(map.end, offset);
                    }
                    map.end = end;
                }
                _ => return Err(BadSlot { offset }),
            }
        }
        Ok((map, gaps))
    }

    fn add_gap(&mut self, mut start: u64, end: u64) {
        // The only slot of a log from elsewhere may be far out. A gap that is not listed is not
        // lost, only unused until the next opening.
        const LISTED_MAX: usize = 1 << 20;
        for (class, capacity) in CAPACITIES.into_iter().enumerate().rev() {
            while end - start >= u64::from(capacity) && self.free[class].len() < LISTED_MAX {
                self.free[class].push(start);
                start += u64::from(capacity);
            }
        }
    }

    /// Excludes a file's first `len` bytes from allocation.
    pub(crate) fn use_only_beyond(&mut self, len: u64) {
        for free in &mut self.free {
            free.clear();
        }
        self.end = self.end.max(len.next_multiple_of(u64::from(SLOT_MIN)));
    }

    /// Returns the smallest capacity for `len` bytes.
    ///
    /// `None` past [`SLOT_MAX`].
    pub(crate) fn capacity_for(len: u64) -> Option<u32> {
        CAPACITIES
            .into_iter()
            .find(|capacity| len <= u64::from(*capacity))
    }

    /// Allocates a slot of one of the known capacities.
    ///
    /// `None` if the file cannot grow any further.
    pub(crate) fn take(&mut self, capacity: u32) -> Option<u64> {
        let class = CAPACITIES.iter().position(|known| *known == capacity)?;
        if let Some(offset) = self.free[class].pop() {
            return Some(offset);
        }
        let offset = self.end;
        let end = offset
            .checked_add(u64::from(capacity))
            .filter(|end| *end <= OFFSET_MAX)?;
        self.end = end;
        Some(offset)
    }

    /// Frees a slot.
    pub(crate) fn release(&mut self, offset: u64, capacity: u32) {
        if let Some(class) = CAPACITIES.iter().position(|known| *known == capacity) {
            self.free[class].push(offset);
        }
    }

    /// Returns the end of the part that may have data, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

/// Joins slots that touch: offset and length of each run, in bytes.
pub(super) fn runs(mut slots: Vec<(u64, u32)>) -> Vec<(u64, u64)> {
    slots.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (offset, capacity) in slots {
        match runs.last_mut() {
            Some((start, len)) if *start + *len == offset => *len += u64::from(capacity),
            _ => runs.push((offset, u64::from(capacity))),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slots_are_used_again_by_capacity() {
        let mut map = SlotMap::new();
        assert_eq!(map.take(4096), Some(0));
        assert_eq!(map.take(65536), Some(4096));
        map.release(0, 4096);
        assert_eq!(map.take(8192), Some(69632));
        assert_eq!(map.take(4096), Some(0));
    }

    #[test]
    fn rebuilding_finds_the_gaps() {
        let (mut map, gaps) = SlotMap::rebuild(vec![(16384, 4096), (0, 4096)]).unwrap();
        assert_eq!(gaps, [(4096, 12288)]);
        assert_eq!(map.end(), 20480);
        assert_eq!(map.take(8192), Some(4096));
        assert_eq!(map.take(4096), Some(12288));
        assert_eq!(map.take(4096), Some(20480));
    }

    #[test]
    fn impossible_slots_are_refused() {
        for bad in [
            vec![(0, 8192), (4096, 4096)],
            vec![(1, 4096)],
            vec![(0, 5000)],
            vec![(u64::MAX - 4095, 4096)],
            vec![(0, 4096), (0, 4096)],
        ] {
            assert!(SlotMap::rebuild(bad.clone()).is_err(), "{bad:?}");
        }
        let (_, gaps) = SlotMap::rebuild(vec![(1 << 60, 4096)]).unwrap();
        assert_eq!(gaps, [(0, 1 << 60)]);
    }

    #[test]
    fn touching_slots_are_joined() {
        assert_eq!(
            runs(vec![(8192, 8192), (0, 4096), (4096, 4096), (32768, 4096)]),
            [(0, 16384), (32768, 4096)]
        );
    }
}
