//! Refs of both sides, as git reads them.

use std::collections::BTreeMap;

use super::*;

impl Pair {
    /// Refs as git reads them: loose ones over packed ones.
    fn refs(&self) -> BTreeMap<String, String> {
        let packed = self.read("packed-refs").unwrap_or_default();
        let mut refs: BTreeMap<String, String> = parse(packed.as_bytes())
            .0
            .into_iter()
            .map(|(name, packed)| (text(name), text(packed.id)))
            .collect();
        let mut dirs = vec!["refs/heads".to_owned()];
        while let Some(dir) = dirs.pop() {
            for (name, kind) in self.list(&dir) {
                let name = format!("{dir}/{name}");
                if kind == FileKind::Directory {
                    dirs.push(name);
                } else {
                    let value = self.read(&name).unwrap();
                    refs.insert(name, value.trim_end().to_owned());
                }
            }
        }
        refs
    }

    fn list(&self, dir: &str) -> Vec<(String, FileKind)> {
        let mut listed = Vec::new();
        self.shown
            .readdir(self.dir(dir), 2, &mut |entry| {
                listed.push((text(entry.name.clone()), entry.kind));
                true
            })
            .unwrap();
        listed
    }

    /// Writes a ref as git does: it makes directories, and removes empty ones in its way.
    fn write_ref(&self, name: &str, id: &str) {
        let (dir, file) = name.rsplit_once('/').unwrap();
        for (slash, _) in dir.match_indices('/').chain([(dir.len(), "")]) {
            if self.find(&dir[..slash]).unwrap().is_none() {
                let (above, below) = dir[..slash].rsplit_once('/').unwrap();
                self.shown
                    .mkdir(ME, self.dir(above), below.as_bytes(), 0o755)
                    .unwrap();
            }
        }
        self.remove_dirs(name);
        self.write(dir, file, &format!("{id}\n"));
    }

    /// Removes a directory with only directories in it, if there is one.
    fn remove_dirs(&self, path: &str) {
        if self.kind(path) != Some(FileKind::Directory) {
            return;
        }
        for (name, _) in self.list(path) {
            self.remove_dirs(&format!("{path}/{name}"));
        }
        let (above, name) = path.rsplit_once('/').unwrap();
        self.shown.rmdir(self.dir(above), name.as_bytes()).unwrap();
        assert_eq!(self.find(path).unwrap(), None);
    }

    /// Removes the directory of a ref if it is empty, as git does.
    fn remove_parent(&self, name: &str) {
        let (dir, _) = name.rsplit_once('/').unwrap();
        if let Some((above, name)) = dir.rsplit_once('/')
            && dir != "refs/heads"
            && self.kind(above) == Some(FileKind::Directory)
        {
            let _ = self.shown.rmdir(self.dir(above), name.as_bytes());
        }
    }

    /// Replaces `packed-refs` as git does.
    fn pack(&self, refs: &BTreeMap<String, String>) {
        let lines = refs.iter().map(|(name, id)| format!("{id} {name}\n"));
        self.write("", "packed-refs", &lines.collect::<String>());
    }

    /// Deletes a ref as git does: from the packed ones first.
    pub(super) fn delete(&self, name: &str) {
        let packed = self.read("packed-refs").unwrap_or_default();
        let mut refs = parse(packed.as_bytes()).0;
        if refs.remove(name.as_bytes()).is_some() {
            let rest = refs.into_iter();
            let rest = rest.map(|(name, packed)| (text(name), text(packed.id)));
            self.pack(&rest.collect());
        } else {
            let (root, lock) = (self.shown.root(), b"packed-refs.lock");
            self.shown.mknod(ME, root, lock, 0o100_644).unwrap();
            self.shown.unlink(root, lock).unwrap();
        }
        self.unlink_loose(name);
    }

    /// Removes the loose file of a ref, if there is one.
    fn unlink_loose(&self, name: &str) {
        if self.kind(name) == Some(FileKind::Regular) {
            let (dir, file) = name.rsplit_once('/').unwrap();
            self.shown.unlink(self.dir(dir), file.as_bytes()).unwrap();
        }
    }

    fn kind(&self, path: &str) -> Option<FileKind> {
        let ino = match self.find(path) {
            Err(error) if is_missing(&error) => None,
            found => found.unwrap(),
        };
        Some(self.shown.getattr(ino?).unwrap().0.kind)
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn id(number: u64) -> String {
    format!("{number:040x}")
}

/// The main repository of the model: refs, and which of them are packed.
#[derive(Default)]
struct MainModel {
    refs: BTreeMap<String, String>,
    packed: BTreeMap<String, String>,
}

impl MainModel {
    fn set(&mut self, pair: &Pair, name: &str, id: String) {
        let in_the_way: Vec<String> = self.refs.keys().cloned().collect();
        for other in in_the_way.iter().filter(|other| clash(other, name)) {
            self.remove(pair, other);
        }
        let path = pair.main(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{id}\n")).unwrap();
        self.refs.insert(name.to_owned(), id);
    }

    fn remove(&mut self, pair: &Pair, name: &str) {
        self.refs.remove(name);
        if self.packed.remove(name).is_some() {
            self.write_packed(pair);
        }
        let _ = fs::remove_file(pair.main(name));
    }

    fn pack(&mut self, pair: &Pair) {
        self.packed.clone_from(&self.refs);
        self.write_packed(pair);
        for name in self.refs.keys() {
            let _ = fs::remove_file(pair.main(name));
        }
    }

    fn write_packed(&self, pair: &Pair) {
        let lines = self.packed.iter();
        let lines = lines.map(|(name, id)| format!("{id} {name}\n"));
        let text = lines.collect::<String>() + &id(5) + " refs/tine/secret\n";
        fs::write(pair.main("packed-refs.lock"), text).unwrap();
        fs::rename(pair.main("packed-refs.lock"), pair.main("packed-refs")).unwrap();
    }
}

/// Returns whether one name is a directory of the other.
fn clash(one: &str, other: &str) -> bool {
    one.starts_with(&format!("{other}/")) || other.starts_with(&format!("{one}/"))
}

/// Random changes of refs on both sides show what the model says.
#[test]
fn refs_are_those_of_the_model() {
    const NAMES: [&str; 9] = ["a", "a/x", "a/x/1", "a/y", "a-b", "b", "b/x", "c", "d"];

    for seed in 1..=60u64 {
        let pair = Pair::new(|_, _| {});
        let mut main = MainModel::default();
        // A removed ref is `None`.
        let mut own: BTreeMap<String, Option<String>> = BTreeMap::new();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |end: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % end
        };
        for step in 0..60 {
            let name = format!("refs/heads/{}", NAMES[next(NAMES.len())]);
            let value = id(step + 100);
            let what = next(9);
            let leaves_dirs = next(2) == 0;
            match what {
                0 => main.set(&pair, &name, value),
                1 => main.pack(&pair),
                2 => main.remove(&pair, &name),
                3 | 4 => {
                    if !pair.refs().keys().any(|other| clash(other, &name)) {
                        pair.write_ref(&name, &value);
                        own.insert(name.clone(), Some(value));
                    }
                }
                5 | 6 => {
                    if pair.refs().contains_key(&name) {
                        pair.delete(&name);
                        if !leaves_dirs {
                            pair.remove_parent(&name);
                        }
                        // Only a ref that the main repository has is hidden from then on.
                        if main.refs.contains_key(&name) || own.get(&name) == Some(&None) {
                            own.insert(name.clone(), None);
                        } else {
                            own.remove(&name);
                        }
                    }
                }
                _ => {
                    let refs = pair.refs();
                    pair.pack(&refs);
                    for name in refs.keys().filter(|_| what == 7) {
                        pair.unlink_loose(name);
                        if !leaves_dirs {
                            pair.remove_parent(name);
                        }
                    }
                }
            }
            if next(16) == 0 {
                pair.resync();
            }
            let mut expected = main.refs.clone();
            for (name, value) in &own {
                match value {
                    Some(value) => {
                        expected.retain(|other, _| !clash(other, name));
                        expected.insert(name.clone(), value.clone());
                    }
                    None => drop(expected.remove(name)),
                }
            }
            assert_eq!(
                pair.refs(),
                expected,
                "seed {seed}, step {step}, {what} {name}"
            );
        }
    }
}

/// git forbids a ref `a` beside a ref `a/b`: the fork's own is there, the lent one is not.
#[test]
fn own_refs_shadow_lent_ones_that_git_forbids_beside_them() {
    for (is_own_packed, is_lent_packed) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        for (own, lent) in [("work/a", "work"), ("zz", "zz/top")] {
            let own = format!("refs/heads/{own}");
            let lent = format!("refs/heads/{lent}");
            let put = |top: PathBuf, name: &str, is_packed: bool, value: char| {
                if is_packed {
                    fs::write(top.join("packed-refs"), line(value, name)).unwrap();
                } else {
                    fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
                    fs::write(top.join(name), value.to_string().repeat(40)).unwrap();
                }
            };
            let pair = Pair::new(|_, _| {});
            put(pair.own(""), &own, is_own_packed, '1');
            pair.resync();
            assert_eq!(pair.refs().len(), 1);
            put(pair.main(""), &lent, is_lent_packed, '2');
            let names: Vec<String> = pair.refs().into_keys().collect();
            assert_eq!(names, [&*own]);
            // git packs what it sees, and the lent ref is not taken for deleted.
            pair.pack(&pair.refs());
            let names: Vec<String> = pair.refs().into_keys().collect();
            assert_eq!(names, [&*own]);
            pair.write_ref(&own, &id(3));
            pair.delete(&own);
            pair.remove_parent(&own);
            let names: Vec<String> = pair.refs().into_keys().collect();
            assert_eq!(names, [&*lent], "{is_own_packed} {is_lent_packed}");
        }
    }
}

#[test]
fn a_ref_takes_the_place_of_a_directory_whose_lent_refs_are_removed() {
    let pair = Pair::new(|_, main| {
        fs::create_dir_all(main.join("refs/heads/a/c/empty")).unwrap();
        fs::write(main.join("refs/heads/a/b"), "1".repeat(40)).unwrap();
    });
    pair.delete("refs/heads/a/b");
    pair.write_ref("refs/heads/a", &id(2));
    assert_eq!(pair.read("refs/heads/a").unwrap().trim_end(), id(2));
    pair.delete("refs/heads/a");
    // Another lent ref brings the directory back.
    fs::write(pair.main("refs/heads/a/c/new"), "3".repeat(40)).unwrap();
    let names: Vec<String> = pair.refs().into_keys().collect();
    assert_eq!(names, ["refs/heads/a/c/new"]);
}

/// The kernel may keep the name of a directory only while the fork has a ref in it.
#[test]
fn an_own_directory_without_refs_gives_way_to_a_lent_ref() {
    let pair = Pair::new(|own, _| {
        fs::create_dir_all(own.join("refs/heads/empty/deep")).unwrap();
        fs::create_dir_all(own.join("refs/heads/full")).unwrap();
        fs::write(own.join("refs/heads/full/a"), "1".repeat(40)).unwrap();
    });
    let heads = pair.dir("refs/heads");
    let keeps = |name: &[u8]| pair.shown.lookup(heads, name).unwrap().keeps_name;
    assert!(keeps(b"full") && !keeps(b"empty"));
    for name in ["empty", "full"] {
        let path = pair.main("refs/heads").join(name);
        fs::write(path, "2".repeat(40)).unwrap();
    }
    let names: Vec<String> = pair.refs().into_keys().collect();
    assert_eq!(names, ["refs/heads/empty", "refs/heads/full/a"]);
    pair.write("", "HEAD", "ref: refs/heads/empty\n");
    let own = fs::read_to_string(pair.own("refs/heads/empty")).unwrap();
    assert_eq!(own.trim_end(), "2".repeat(40));
    // A program that does not remove the directory: the kernel is told.
    let full = pair.dir("refs/heads/full");
    pair.shown.unlink(full, b"a").unwrap();
    let told = pair.resync();
    let is_full = |told: &String| told.starts_with("Entry") && told.contains("full");
    assert!(told.iter().any(is_full), "{told:?}");
    assert!(pair.refs().contains_key("refs/heads/full"));
}

/// A hidden name hides a ref, and no directory that the main repository has later.
#[test]
fn a_hidden_ref_does_not_hide_later_ones_below_its_name() {
    let pair = Pair::new(|_, main| fs::write(main.join("refs/heads/a"), "1".repeat(40)).unwrap());
    pair.delete("refs/heads/a");
    fs::remove_file(pair.main("refs/heads/a")).unwrap();
    fs::create_dir(pair.main("refs/heads/a")).unwrap();
    fs::write(pair.main("refs/heads/a/b"), "2".repeat(40)).unwrap();
    let found = pair.shown.lookup(pair.dir("refs/heads"), b"a").unwrap();
    assert!(!found.keeps_name);
    let names: Vec<String> = pair.refs().into_keys().collect();
    assert_eq!(names, ["refs/heads/a/b"]);
}
