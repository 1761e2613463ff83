//! Random changes against a plain model, with processes that end and disks that stop at any step.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What a layer holds, in plain values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct State {
    pub files: BTreeMap<Ino, Vec<u8>>,
    pub names: BTreeMap<(Ino, Vec<u8>), Dentry>,
}

pub(super) fn state_of(layer: &Layer) -> State {
    let mut state = State::default();
    for (ino, _) in layer.index().nodes() {
        state.files.insert(ino, read_all(layer, ino));
    }
    for (parent, dir) in layer.index().dirs() {
        for (name, dentry) in dir.iter() {
            state
                .names
                .insert((parent, name.as_bytes().to_vec()), dentry);
        }
    }
    let stats = layer.stats();
    assert_eq!(stats.nodes, state.files.len() as u64);
    assert_eq!(stats.dentries, state.names.len() as u64);
    state
}

/// One step of a random run. Files and names are few, so that steps meet.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Makes the file, or replaces it as an atomic save does.
    Put {
        file: u8,
        len: u32,
        fill: u8,
    },
    Write {
        file: u8,
        offset: u32,
        len: u32,
        fill: u8,
    },
    Resize {
        file: u8,
        len: u32,
    },
    Zero {
        file: u8,
        offset: u32,
        len: u32,
    },
    Reserve {
        file: u8,
        len: u32,
    },
    Drop {
        file: u8,
    },
    Name {
        name: u8,
        whiteout: bool,
    },
    Unname {
        name: u8,
    },
    Sync,
    Compact,
    /// The process ends without a word and another one comes.
    Reopen,
}

/// Mostly short, sometimes across the threshold of a file.
fn len() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..10_000, 2 => 0u32..70_000, 1 => 60_000u32..300_000]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let file = 0u8..5;
    let fill = 1u8..;
    prop_oneof![
        3 => (file.clone(), len(), fill.clone()).prop_map(|(file, len, fill)| Step::Put { file, len, fill }),
        6 => (file.clone(), len(), len(), fill)
            .prop_map(|(file, offset, len, fill)| Step::Write { file, offset, len, fill }),
        4 => (file.clone(), len()).prop_map(|(file, len)| Step::Resize { file, len }),
        2 => (file.clone(), len(), len()).prop_map(|(file, offset, len)| Step::Zero { file, offset, len }),
        1 => (file.clone(), len()).prop_map(|(file, len)| Step::Reserve { file, len }),
        2 => file.prop_map(|file| Step::Drop { file }),
        2 => (0u8..6, any::<bool>()).prop_map(|(name, whiteout)| Step::Name { name, whiteout }),
        1 => (0u8..6).prop_map(|name| Step::Unname { name }),
        2 => Just(Step::Sync),
        1 => Just(Step::Compact),
        2 => Just(Step::Reopen),
    ]
}

fn ino(file: u8) -> Ino {
    Ino(Ino::NEW_BIT | (1000 + u64::from(file)))
}

fn key(name: u8) -> (Ino, Vec<u8>) {
    (Ino(u64::from(name % 2) + 1), vec![b'n', 0x80 + name])
}

/// What `step` makes of the model. Steps that speak of a missing file change nothing.
pub(super) fn expect(state: &mut State, step: &Step) {
    match step {
        Step::Put { file, len, fill } => {
            state.files.insert(ino(*file), vec![*fill; *len as usize]);
        }
        Step::Write {
            file,
            offset,
            len,
            fill,
        } => {
            if let Some(bytes) = state.files.get_mut(&ino(*file))
                && *len > 0
            {
                let (start, end) = (*offset as usize, (*offset + *len) as usize);
                bytes.resize(bytes.len().max(end), 0);
                bytes[start..end].fill(*fill);
            }
        }
        Step::Resize { file, len } => {
            if let Some(bytes) = state.files.get_mut(&ino(*file)) {
                bytes.resize(*len as usize, 0);
            }
        }
        Step::Zero { file, offset, len } => {
            if let Some(bytes) = state.files.get_mut(&ino(*file)) {
                let start = (*offset as usize).min(bytes.len());
                let end = ((*offset + *len) as usize).min(bytes.len());
                bytes[start..end].fill(0);
            }
        }
        Step::Drop { file } => {
            state.files.remove(&ino(*file));
        }
        Step::Name { name, whiteout } => {
            let dentry = match whiteout {
                true => Dentry::Whiteout,
                false => Dentry::Entry(ino(*name)),
            };
            state.names.insert(key(*name), dentry);
        }
        Step::Unname { name } => {
            state.names.remove(&key(*name));
        }
        Step::Reserve { .. } | Step::Sync | Step::Compact | Step::Reopen => {}
    }
}

/// Does `step` to a layer, as the file system above would.
pub(super) fn run(layer: &mut Layer, step: &Step) -> Result<(), LayerError> {
    let has = |layer: &Layer, file: u8| layer.index().node(ino(file)).is_some();
    match step {
        Step::Put { file, len, fill } => {
            let content = layer.new_content(u64::from(*len / 2))?;
            let bytes = vec![*fill; *len as usize];
            match layer.write_content(content, 0, 0, &bytes) {
                Ok(moved) => {
                    if moved != content {
                        layer.abandon_content(content);
                    }
                    let node = node(Content::Own(moved), u64::from(*len));
                    layer
                        .commit(vec![Op::PutNode(ino(*file), node)])
                        .inspect_err(|_| layer.abandon_content(moved))
                }
                Err(error) => {
                    layer.abandon_content(content);
                    Err(error)
                }
            }
        }
        Step::Write {
            file,
            offset,
            len,
            fill,
        } if has(layer, *file) && *len > 0 => {
            let write = match fill % 2 {
                0 => write,
                _ => write_beside,
            };
            write(
                layer,
                ino(*file),
                u64::from(*offset),
                &vec![*fill; *len as usize],
            )
        }
        Step::Resize { file, len } if has(layer, *file) => {
            resize(layer, ino(*file), u64::from(*len))
        }
        Step::Zero { file, offset, len } if has(layer, *file) => {
            let (content, size) = own(layer, ino(*file));
            let (offset, len) = (u64::from(*offset), u64::from(*len));
            match layer.begin_writing(content, size)? {
                Some(file) => {
                    let zeroed = file.zero(size, offset, len);
                    layer.end_writing(&file);
                    zeroed
                }
                None => layer.zero_content(content, size, offset, len),
            }
        }
        Step::Reserve { file, len } if has(layer, *file) => {
            let (content, size) = own(layer, ino(*file));
            let moved = layer.reserve_content(content, size, 0, u64::from(*len))?;
            put_content(layer, ino(*file), content, moved, size)
        }
        Step::Drop { file } => layer.commit(vec![Op::DropNode(ino(*file))]),
        Step::Name { name, whiteout } => {
            let (parent, bytes) = key(*name);
            layer.commit(vec![Op::PutDentry {
                parent,
                name: super::name(bytes),
                dentry: match whiteout {
                    true => Dentry::Whiteout,
                    false => Dentry::Entry(ino(*name)),
                },
            }])
        }
        Step::Unname { name } => {
            let (parent, bytes) = key(*name);
            layer.commit(vec![Op::DropDentry {
                parent,
                name: super::name(bytes),
            }])
        }
        Step::Sync => layer.sync(),
        Step::Compact => layer.compact(),
        Step::Write { .. }
        | Step::Resize { .. }
        | Step::Zero { .. }
        | Step::Reserve { .. }
        | Step::Reopen => Ok(()),
    }
}

proptest! {
    #![proptest_config(few_cases())]

    /// Invariant 13: whatever moment the process ends at, no acknowledged change is lost.
    #[test]
    fn a_layer_is_what_its_changes_say(steps in prop::collection::vec(step(), 1..60)) {
        let (_temp, dir) = temp();
        let mut layer = Layer::create(&dir, ID).unwrap();
        let mut expected = State::default();
        for step in &steps {
            if matches!(step, Step::Reopen) {
                drop(layer);
                layer = Layer::open(&dir).unwrap();
            }
            run(&mut layer, step).unwrap();
            expect(&mut expected, step);
            prop_assert!(state_of(&layer) == expected, "after {step:?}");
        }
        let content_bytes = layer.stats().content_bytes;
        drop(layer);
        let layer = Layer::open(&dir).unwrap();
        prop_assert!(state_of(&layer) == expected);
        // Not to the byte: the disk may come to need a little more or less for a file while it is
        // written out.
        prop_assert!(layer.stats().content_bytes.abs_diff(content_bytes) <= 32 << 10);
        let frozen = layer.freeze();
        prop_assert_eq!(frozen.index().node_count(), expected.files.len() as u64);
    }
}
