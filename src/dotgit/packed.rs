//! `packed-refs`: the main repository's, merged with the fork's own.
//!
//! On the host the fork's file has only its own refs. Programs see one file with both, and write
//! one. What they write is compared with what the main repository has.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::conflicts::{Names, Shadowed};
use crate::layout::{self, Lent, PACKED_REFS};
use crate::listing::path_of;
use crate::nodes::{self, Body, State};
use crate::refs::replace;
use crate::{GitDirectory, LookedUp, is_missing};
use tine_attr::{FileKind, Ino, Timestamp};
use tine_sys::beneath::{self, Access, HostStat};

/// First line of the file: what git can rely on.
const HEADER: &[u8] = b"# pack-refs with: peeled fully-peeled sorted \n";

/// Maximum time between packing refs and removing their loose files.
const PRUNING: Duration = Duration::from_secs(10);

/// Maximum length of a loose ref: an id and a line end.
const MAX_LOOSE_LEN: usize = 66;

/// Packed refs: name, value, and the line with what a tag leads to.
pub(crate) type Refs = BTreeMap<Vec<u8>, Packed>;

/// One packed ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packed {
    /// Object id, in hex.
    pub id: Vec<u8>,
    /// Object id that a tag leads to, in hex.
    pub peeled: Option<Vec<u8>>,
}

/// Identity of one version of a file.
type Version = Option<(u64, u64, u64, Timestamp)>;

/// Lent refs that programs saw since one locked `packed-refs`.
///
/// A value that the program then writes is one of these, unless the fork set it.
#[derive(Default)]
pub(crate) struct SeenSinceLock {
    packed: Vec<Arc<Refs>>,
    loose: HashSet<(Vec<u8>, Vec<u8>)>,
    /// Packed refs that were shadowed when the program took the lock.
    shadowed: Arc<Names>,
}

impl SeenSinceLock {
    /// Adds the packed refs, unless they are the last ones.
    fn add_packed(&mut self, refs: &Arc<Refs>) {
        if self
            .packed
            .last()
            .is_none_or(|last| !Arc::ptr_eq(last, refs))
        {
            self.packed.push(refs.clone());
        }
    }

    fn has(&self, name: &[u8], id: &[u8]) -> bool {
        let is_packed = |refs: &Arc<Refs>| refs.get(name).is_some_and(|packed| packed.id == id);
        self.packed.iter().any(is_packed) || self.loose.contains(&(name.to_vec(), id.to_vec()))
    }
}

impl State {
    /// Notes the value of a lent loose ref while `packed-refs` is locked.
    pub(crate) fn note_seen(&mut self, ino: Ino, path: &[u8]) {
        let Some(seen) = self
            .seen_since_lock
            .as_mut()
            .filter(|_| layout::is_ref(path))
        else {
            return;
        };
        if let Some(Body::Lent {
            file: Some(file), ..
        }) = self.nodes.get(&ino).map(|node| &node.body)
        {
            let mut value = [0; MAX_LOOSE_LEN];
            if let Ok(count) = file.read_at(&mut value, 0) {
                let value = value[..count].trim_ascii().to_vec();
                seen.loose.insert((path.to_vec(), value));
            }
        }
    }

    /// Returns whether a lent loose ref is removed after packing it.
    pub(crate) fn is_pruned(&mut self, path: &[u8]) -> bool {
        let (refs, since) = &mut self.packed_now;
        if !layout::is_ref(path) || since.is_none_or(|since| since.elapsed() > PRUNING) {
            return false;
        }
        // The main repository may have changed the ref since the program compared it.
        refs.remove(path)
    }
}

/// Identity of a merged file: the files of both, what is hidden, and what is shadowed.
type MergedKey = (Version, Version, usize, u64);

/// Parsed files and the merged one.
#[derive(Default)]
pub(crate) struct PackedCache {
    own: Option<(Version, Arc<Refs>)>,
    main: Option<(Version, Arc<Refs>, bool)>,
    merged: Option<(MergedKey, Ino)>,
    pub shadowed: Option<Shadowed>,
}

impl GitDirectory {
    /// Returns the fork's own packed refs.
    pub(crate) fn own_packed(&self) -> io::Result<Arc<Refs>> {
        let version = version(nodes::stat_if_there(&self.own, PACKED_REFS)?);
        let mut cache = self.packed.lock();
        if let Some((known, refs)) = &cache.own
            && *known == version
        {
            return Ok(refs.clone());
        }
        let refs = Arc::new(parse(&read_if_there(&self.own, PACKED_REFS)?).0);
        cache.own = Some((version, refs.clone()));
        Ok(refs)
    }

    /// Returns the main repository's packed refs.
    ///
    /// The last value is true if the file may be shown unchanged.
    pub(crate) fn main_packed(&self) -> io::Result<(Version, Arc<Refs>, bool)> {
        let main = &self.lent[0];
        let version = version(nodes::stat_if_there(main, PACKED_REFS)?);
        let mut cache = self.packed.lock();
        if let Some(known) = &cache.main
            && known.0 == version
        {
            return Ok(known.clone());
        }
        let (mut refs, is_plain) = parse(&read_if_there(main, PACKED_REFS)?);
        let before = refs.len();
        refs.retain(|name, _| !layout::is_own_ref(name));
        let is_whole = refs.len() == before;
        let known = (version, Arc::new(refs), is_plain && is_whole);
        cache.main = Some(known.clone());
        Ok(known)
    }

    /// Finds the file that programs see.
    pub(crate) fn find_packed(
        &self,
        state: &mut State,
        parent: Ino,
        name: &[u8],
    ) -> io::Result<LookedUp> {
        let own_version = version(nodes::stat_if_there(&self.own, PACKED_REFS)?);
        let (main_version, main, is_whole) = self.main_packed()?;
        if let Some(seen) = &mut state.seen_since_lock {
            seen.add_packed(&main);
        }
        let own = self.own_packed()?;
        let shadowed = self.shadowed(state, &main, &own)?;
        if own.is_empty() && state.hidden.is_empty() && shadowed.is_empty() && is_whole {
            let lent = Lent {
                top: 0,
                path: PACKED_REFS.to_vec(),
            };
            let Some(stat) = self.stat_lent(&lent)? else {
                return Ok(LookedUp::MISSING);
            };
            return Ok(self.found_lent(state, (parent, name), lent, &stat, PACKED_REFS));
        }
        let changes = state.own_loose.changes;
        let key = (main_version, own_version, hidden_key(state), changes);
        let merged = self.packed.lock().merged;
        let known = merged.filter(|merged| merged.0 == key);
        let known = known.map(|merged| merged.1);
        let known = known.filter(|ino| state.known_at(parent, name) == Some(*ino));
        let ino = match known {
            Some(ino) => ino,
            None => {
                let visible = main
                    .iter()
                    .filter(|(name, _)| !state.hidden.contains(*name) && !shadowed.contains(*name));
                let content = format_merged(visible, &own);
                state.take_name(parent, name);
                let ino = state.enter(
                    parent,
                    name,
                    Body::Computed {
                        content: content.into(),
                        time: Timestamp::now(),
                        of: None,
                    },
                );
                self.packed.lock().merged = Some((key, ino));
                ino
            }
        };
        let attr = self.attr_in(state, ino)?;
        Ok(LookedUp {
            attr: Some(attr),
            keeps_name: false,
            keeps_attr: true,
        })
    }

    /// Takes a file that a program puts in the place of `packed-refs`.
    pub(crate) fn take_packed(
        &self,
        state: &mut State,
        dir: &Arc<File>,
        name: &[u8],
    ) -> io::Result<()> {
        let (written, _) = parse(&read_if_there(dir, name)?);
        let (_, main, _) = self.main_packed()?;
        let own_before = self.own_packed()?;
        let shadowed = self.shadowed(state, &main, &own_before)?;
        let loose = self.main_loose()?;
        // The program may have read refs before the main repository changed them.
        let seen = state.seen_since_lock.take();
        let is_of_main = |name: &Vec<u8>, id: &Vec<u8>| {
            loose.get(name) == Some(id)
                || main.get(name).is_some_and(|packed| packed.id == *id)
                || seen.as_ref().is_some_and(|seen| seen.has(name, id))
        };
        let mut own = Refs::new();
        for (name, packed) in &written {
            let is_own = own_before.contains_key(name)
                || !is_of_main(name, &packed.id)
                || self.has_own_loose(name, &packed.id)?;
            if is_own {
                own.insert(name.clone(), packed.clone());
            }
        }
        let was_seen = |name: &Vec<u8>| {
            let is_in = |seen: &SeenSinceLock| {
                let first = seen.packed.first();
                first.is_none_or(|refs| refs.contains_key(name)) && !seen.shadowed.contains(name)
            };
            seen.as_ref().is_none_or(is_in) && !shadowed.contains(name)
        };
        let gone = main.keys().filter(|name| {
            !written.contains_key(*name) && !state.hidden.contains(*name) && was_seen(name)
        });
        // A ref of the fork's own that goes does not give way to the main repository's.
        let is_lent = |name: &&Vec<u8>| loose.contains_key(*name) || main.contains_key(*name);
        let deleted = own_before
            .keys()
            .filter(|name| !written.contains_key(*name))
            .filter(is_lent);
        let gone: Vec<Vec<u8>> = gone.chain(deleted).cloned().collect();
        let is_shown_again = |name: &Vec<u8>| written.contains_key(name);
        let hidden_before = state.hidden.clone();
        state.hidden.retain(|name| !is_shown_again(name));
        state.hidden.extend(gone);
        let content = format_merged(std::iter::empty(), &own);
        if state.hidden != hidden_before {
            self.write_hidden(state)?;
        }
        replace(&self.own, PACKED_REFS, &content)?;
        tine_sys::calls_beneath::remove(dir, name, false)?;
        state.packed_now = (written.into_keys().collect(), Some(Instant::now()));
        Ok(())
    }

    /// Removes all packed refs that programs see.
    pub(crate) fn remove_packed(&self, state: &mut State) -> io::Result<()> {
        let (_, main, _) = self.main_packed()?;
        let own = self.own_packed()?;
        let shadowed = self.shadowed(state, &main, &own)?;
        let visible = main.keys().filter(|name| !shadowed.contains(*name));
        state.hidden.extend(visible.cloned());
        self.write_hidden(state)?;
        match tine_sys::calls_beneath::remove(&self.own, PACKED_REFS, false) {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether the fork has a loose ref with this value.
    fn has_own_loose(&self, name: &[u8], id: &[u8]) -> io::Result<bool> {
        let stat = nodes::stat_if_there(&self.own, name)?;
        match stat.filter(|stat| stat.kind == FileKind::Regular) {
            Some(_) => Ok(read_if_there(&self.own, name)?.trim_ascii() == id),
            None => Ok(false),
        }
    }

    /// Notes what the main repository has while a program locks the file.
    ///
    /// git locks it to delete refs, and not to remove the loose files of refs that it packed.
    pub(crate) fn note_packed_lock(&self, state: &mut State) -> io::Result<()> {
        state.packed_now = (HashSet::new(), None);
        let (_, main, _) = self.main_packed()?;
        let own = self.own_packed()?;
        let shadowed = self.shadowed(state, &main, &own)?;
        let seen = state.seen_since_lock.insert(SeenSinceLock {
            shadowed,
            ..SeenSinceLock::default()
        });
        seen.add_packed(&main);
        Ok(())
    }
}

/// Returns a number that changes with the hidden names.
fn hidden_key(state: &State) -> usize {
    use std::hash::{Hash, Hasher};
    let mut hasher = siphasher::sip::SipHasher13::new();
    state.hidden.hash(&mut hasher);
    hasher.finish() as usize
}

fn version(stat: Option<HostStat>) -> Version {
    stat.map(|stat| (stat.dev, stat.ino, stat.size, stat.mtime))
}

/// Reads a file below a directory; a missing one is empty.
pub(crate) fn read_if_there(dir: &File, path: &[u8]) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    match beneath::open(dir, path_of(path), Access::Read) {
        Ok(mut file) => {
            file.read_to_end(&mut content)?;
            Ok(content)
        }
        Err(error) if is_missing(&error) => Ok(content),
        Err(error) => Err(error),
    }
}

/// Parses `packed-refs`.
///
/// Also returns whether the header is as git writes it now.
pub(crate) fn parse(content: &[u8]) -> (Refs, bool) {
    let mut refs = Refs::new();
    let mut last: Option<Vec<u8>> = None;
    let mut is_plain = true;
    for line in content.split(|&byte| byte == b'\n') {
        match line {
            [] => {}
            [b'#', ..] => is_plain = contains(line, b"sorted") && contains(line, b"fully-peeled"),
            [b'^', peeled @ ..] => {
                if let Some(packed) = last.as_ref().and_then(|name| refs.get_mut(name)) {
                    packed.peeled = Some(peeled.trim_ascii_end().to_vec());
                }
            }
            line => {
                let Some(space) = line.iter().position(|&byte| byte == b' ') else {
                    continue;
                };
                let name = line[space + 1..].trim_ascii_end().to_vec();
                let packed = Packed {
                    id: line[..space].to_vec(),
                    peeled: None,
                };
                refs.insert(name.clone(), packed);
                last = Some(name);
            }
        }
    }
    (refs, is_plain)
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part == word)
}

/// Formats the refs of both. The fork's own win.
pub(crate) fn format_merged<'r>(
    main: impl Iterator<Item = (&'r Vec<u8>, &'r Packed)>,
    own: &Refs,
) -> Vec<u8> {
    let mut content = HEADER.to_vec();
    let mut write = |name: &[u8], packed: &Packed| {
        content.extend_from_slice(&packed.id);
        content.push(b' ');
        content.extend_from_slice(name);
        content.push(b'\n');
        if let Some(peeled) = &packed.peeled {
            content.push(b'^');
            content.extend_from_slice(peeled);
            content.push(b'\n');
        }
    };
    let mut own = own.iter().peekable();
    for (name, packed) in main {
        while let Some((earlier, of_fork)) = own.next_if(|(earlier, _)| *earlier < name) {
            write(earlier, of_fork);
        }
        if own.peek().is_some_and(|(same, _)| *same == name) {
            continue;
        }
        write(name, packed);
    }
    for (name, packed) in own {
        write(name, packed);
    }
    content
}
