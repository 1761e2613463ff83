//! Objects as no git would make them, written byte by byte.

use std::fs;
use std::path::PathBuf;

use gix::ObjectId;

use crate::support::TestRepo;

/// Bytes as a zlib stream, not compressed.
pub fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut chunks = bytes.chunks(0xffff).peekable();
    if bytes.is_empty() {
        stream.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    while let Some(chunk) = chunks.next() {
        let len = chunk.len() as u16;
        stream.push(u8::from(chunks.peek().is_none()));
        stream.extend_from_slice(&len.to_le_bytes());
        stream.extend_from_slice(&(!len).to_le_bytes());
        stream.extend_from_slice(chunk);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    stream.extend_from_slice(&(b << 16 | a).to_be_bytes());
    stream
}

pub fn hash(bytes: &[u8]) -> ObjectId {
    let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
    hasher.update(bytes);
    hasher.try_finalize().expect("it is no collision attack")
}

fn place(repo: &TestRepo, id: ObjectId) -> PathBuf {
    let hex = id.to_string();
    repo.common_dir()
        .join("objects")
        .join(&hex[..2])
        .join(&hex[2..])
}

/// Puts a loose object where `id` belongs, whatever it holds.
pub fn put(repo: &TestRepo, id: ObjectId, header_and_content: &[u8]) {
    let path = place(repo, id);
    fs::create_dir_all(path.parent().expect("it is in a directory")).unwrap();
    // Objects are read-only.
    let _ = fs::remove_file(&path);
    fs::write(path, zlib(header_and_content)).unwrap();
}

/// Takes a loose object away.
pub fn lose(repo: &TestRepo, id: ObjectId) {
    fs::remove_file(place(repo, id)).unwrap();
}

/// Writes a loose object.
pub fn object(repo: &TestRepo, kind: &str, content: &[u8]) -> ObjectId {
    let mut whole = format!("{kind} {}\0", content.len()).into_bytes();
    whole.extend_from_slice(content);
    let id = hash(&whole);
    if !place(repo, id).exists() {
        put(repo, id, &whole);
    }
    id
}

pub fn blob(repo: &TestRepo, content: &[u8]) -> ObjectId {
    object(repo, "blob", content)
}

/// A tree with these entries, as they are.
pub fn tree(repo: &TestRepo, entries: &[(&str, &[u8], ObjectId)]) -> ObjectId {
    object(repo, "tree", &tree_content(entries))
}

pub fn tree_content(entries: &[(&str, &[u8], ObjectId)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (mode, name, id) in entries {
        content.extend_from_slice(mode.as_bytes());
        content.push(b' ');
        content.extend_from_slice(name);
        content.push(0);
        content.extend_from_slice(id.as_bytes());
    }
    content
}

pub fn commit(repo: &TestRepo, tree: ObjectId) -> String {
    let content = format!(
        "tree {tree}\nauthor H <h@h> 1000000000 +0000\ncommitter H <h@h> 1000000000 +0000\n\nhostile\n"
    );
    object(repo, "commit", content.as_bytes()).to_string()
}

/// An object in a pack.
pub struct Packed {
    /// What the pack's index calls it, true or not.
    pub id: ObjectId,
    /// 3 is a blob, 6 and 7 are deltas.
    pub kind: u8,
    /// Of what it holds, inflated.
    pub size: u64,
    /// What stands between header and stream: the base of a delta.
    pub base: Vec<u8>,
    pub content: Vec<u8>,
}

impl Packed {
    /// An object as it is, `kind` by name.
    pub fn whole(kind: &str, content: Vec<u8>) -> Packed {
        let mut whole = format!("{kind} {}\0", content.len()).into_bytes();
        whole.extend_from_slice(&content);
        Packed {
            id: hash(&whole),
            kind: match kind {
                "tree" => 2,
                _ => 3,
            },
            size: content.len() as u64,
            base: Vec::new(),
            content,
        }
    }
}

/// Writes a pack and its index; nothing in them is checked.
pub fn pack(repo: &TestRepo, objects: &[Packed]) {
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    pack.extend_from_slice(&(objects.len() as u32).to_be_bytes());
    let mut entries = Vec::new();
    for object in objects {
        let offset = pack.len() as u32;
        let mut size = object.size >> 4;
        let mut byte = object.kind << 4 | (object.size & 15) as u8;
        while size > 0 {
            pack.push(byte | 0x80);
            byte = (size & 0x7f) as u8;
            size >>= 7;
        }
        pack.push(byte);
        pack.extend_from_slice(&object.base);
        pack.extend_from_slice(&zlib(&object.content));
        entries.push((object.id, offset));
    }
    let pack_hash = hash(&pack);
    pack.extend_from_slice(pack_hash.as_bytes());

    entries.sort();
    let mut index = b"\xfftOc\0\0\0\x02".to_vec();
    for first in 0..=255u8 {
        let count = entries
            .iter()
            .filter(|(id, _)| id.as_bytes()[0] <= first)
            .count();
        index.extend_from_slice(&(count as u32).to_be_bytes());
    }
    for (id, _) in &entries {
        index.extend_from_slice(id.as_bytes());
    }
    // Checksums that nobody looks at while reading.
    index.extend(std::iter::repeat_n(0, 4 * entries.len()));
    for (_, offset) in &entries {
        index.extend_from_slice(&offset.to_be_bytes());
    }
    index.extend_from_slice(pack_hash.as_bytes());
    let index_hash = hash(&index);
    index.extend_from_slice(index_hash.as_bytes());
    let dir = repo.common_dir().join("objects/pack");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(format!("pack-{pack_hash}.pack")), pack).unwrap();
    fs::write(dir.join(format!("pack-{pack_hash}.idx")), index).unwrap();
}

/// A number in a delta's header: seven bits a byte, the lowest first.
pub fn delta_number(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// The distance to the base of an offset delta.
pub fn delta_offset(distance: u64) -> Vec<u8> {
    let mut bytes = vec![(distance & 0x7f) as u8];
    let mut rest = distance >> 7;
    while rest > 0 {
        rest -= 1;
        bytes.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    bytes.reverse();
    bytes
}
