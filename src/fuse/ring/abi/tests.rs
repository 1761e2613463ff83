use proptest::prelude::*;

use super::*;
use crate::entries::REMEMBER;

/// A request as the kernel would put it into a slot.
fn slot(opcode: u32, arguments: &[u8], payload: &[u8]) -> ([u8; HEADER_LEN], Vec<u8>) {
    let mut header = [0xaa; HEADER_LEN];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        header[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&64u32.to_ne_bytes());
    put(&opcode.to_ne_bytes());
    put(&7u64.to_ne_bytes());
    put(&42u64.to_ne_bytes());
    for number in [1000u32, 1001, 1234] {
        put(&number.to_ne_bytes());
    }
    header[OP_IN_AT..OP_IN_AT + arguments.len()].copy_from_slice(arguments);
    let len = payload.len() as u32;
    header[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 4].copy_from_slice(&len.to_ne_bytes());
    let mut bytes = payload.to_vec();
    // What an earlier request left behind.
    bytes.extend_from_slice(b"stale\0stale\0");
    (header, bytes)
}

/// The numbers of a structure one after the other.
macro_rules! fields {
    ($($number:expr),* $(,)?) => {{
        let mut bytes: Vec<u8> = Vec::new();
        $(bytes.extend_from_slice(&$number.to_ne_bytes());)*
        bytes
    }};
}

#[track_caller]
fn assert_decoded(opcode: u32, arguments: &[u8], payload: &[u8], expected: Answer<Request<'_>>) {
    let (header, bytes) = slot(opcode, arguments, payload);
    let decoded = Header::decode(&header).unwrap();
    assert_eq!(decoded.node, Ino(42));
    assert_eq!((decoded.caller.uid, decoded.caller.gid), (1000, 1001));
    assert_eq!(decoded.caller.thread, 1234);
    assert_eq!(decoded.request(&header, &bytes), expected);
}

#[test]
fn names_end_at_their_zero() {
    let name = b"name".as_slice();
    assert_decoded(1, &[], b"name\0", Ok(Request::Lookup { name }));
    assert_decoded(10, &[], b"name\0", Ok(Request::Unlink { name }));
    let target = b"to/where".as_slice();
    assert_decoded(
        6,
        &[],
        b"name\0to/where\0",
        Ok(Request::Symlink { name, target }),
    );
    assert_decoded(1, &[], b"name", Err(Errno::EIO));
    assert_decoded(6, &[], b"name\0to/where", Err(Errno::EIO));
}

#[test]
fn a_rename_has_flags_where_it_says_so() {
    let expected = |flags| Request::Rename {
        name: b"a",
        new_parent: Ino(9),
        new_name: b"b",
        flags,
    };
    assert_decoded(12, &fields!(9u64, 5u32), b"a\0b\0", Ok(expected(0)));
    assert_decoded(45, &fields!(9u64, 5u32), b"a\0b\0", Ok(expected(5)));
}

#[test]
fn makers_bring_their_umask() {
    assert_decoded(
        8,
        &fields!(0o100_644u32, 3u32, 0o22u32, 0u32),
        b"n\0",
        Ok(Request::MkNod {
            name: b"n",
            mode: 0o100_644,
            rdev: 3,
            umask: 0o22,
        }),
    );
    assert_decoded(
        9,
        &fields!(0o755u32, 0o27u32),
        b"d\0",
        Ok(Request::MkDir {
            name: b"d",
            mode: 0o755,
            umask: 0o27,
        }),
    );
}

#[test]
fn only_what_is_valid_is_set() {
    let arguments = |valid: u32| {
        fields!(
            valid,
            0u32,
            11u64,
            4096u64,
            12u64, // handle, size, lock owner
            -2i64,
            77u64,
            88u64,
            800_000_000u32,
            5u32,
            6u32, // times
            0o104_755u32,
            0u32,
            500u32,
            600u32,
            0u32,
        )
    };
    let nothing = SetAttr::default();
    assert_decoded(4, &arguments(0), b"", Ok(Request::SetAttr(nothing)));
    let all = SetAttr {
        perm: Some(0o4755),
        uid: Some(500),
        gid: Some(600),
        size: Some(4096),
        atime: Some(SetTime::At(Timestamp {
            secs: -2,
            nanos: 800_000_000,
        })),
        mtime: Some(SetTime::Now),
    };
    let valid =
        set::MODE | set::UID | set::GID | set::SIZE | set::ATIME | set::MTIME | set::MTIME_NOW;
    assert_decoded(4, &arguments(valid), b"", Ok(Request::SetAttr(all)));
}

#[test]
fn data_is_as_long_as_the_request_says() {
    let arguments = |size: u32, flags: u32| fields!(1u64, 4096u64, size, flags, 0u64, 0u32, 0u32);
    assert_decoded(
        16,
        &arguments(3, KILL_SUIDGID),
        b"abc",
        Ok(Request::Write {
            offset: 4096,
            data: b"abc",
            kill_privileges: true,
        }),
    );
    assert_decoded(16, &arguments(4, 0), b"abc", Err(Errno::EIO));
    assert_decoded(
        21,
        &fields!(2u32, 1i32),
        b"user.x\0va",
        Ok(Request::SetXattr {
            name: b"user.x",
            value: b"va",
            flags: 1,
        }),
    );
    assert_decoded(21, &fields!(3u32, 1i32), b"user.x\0va", Err(Errno::EIO));
    let ioctl = fields!(0u64, 0u32, 0x4008_6602u32, 0u64, 4u32, 0u32);
    assert_decoded(
        39,
        &ioctl,
        &[1, 2, 3, 4],
        Ok(Request::Ioctl {
            command: 0x4008_6602,
            data: &[1, 2, 3, 4],
        }),
    );
}

#[test]
fn numbers_are_where_the_kernel_puts_them() {
    let read = fields!(1u64, 8192u64, 4096u32, 0u32, 0u64, 0u32, 0u32);
    let (offset, size) = (8192, 4096);
    assert_decoded(15, &read, b"", Ok(Request::Read { offset, size }));
    assert_decoded(
        44,
        &read,
        b"",
        Ok(Request::ReadDirPlus {
            cookie: offset,
            size,
        }),
    );
    let seek = fields!(1u64, -1i64, libc::SEEK_HOLE, 0u32);
    let whence = libc::SEEK_HOLE;
    assert_decoded(46, &seek, b"", Ok(Request::Lseek { offset: -1, whence }));
    assert_decoded(
        43,
        &fields!(1u64, 2u64, 3u64, 4i32),
        b"",
        Ok(Request::Fallocate {
            offset: 2,
            len: 3,
            mode: 4,
        }),
    );
    assert_decoded(
        47,
        &fields!(1u64, 2u64, 3u64, 4u64, 5u64, 6u64, 7u64),
        b"",
        Ok(Request::CopyFileRange {
            from_offset: 2,
            to: (Ino(3), 5),
            len: 6,
            flags: 7,
        }),
    );
}

#[test]
fn what_is_not_known_is_enosys() {
    // FORGET comes another way; 50 is SYNCFS.
    for opcode in [0, 2, 26, 36, 50, 51, 52, 53, 4096, u32::MAX] {
        assert_decoded(opcode, &[], b"", Err(Errno::ENOSYS));
    }
}

#[test]
fn an_answer_stands_where_the_request_did() {
    let (mut header, _) = slot(1, &[], b"name\0");
    let decoded = Header::decode(&header).unwrap();
    let len = |header: &[u8; HEADER_LEN]| Fields(&header[PAYLOAD_LEN_AT..]).u32();
    decoded.answer(Ok(128), &mut header);
    assert_eq!(header[..16], fields!(144u32, 0i32, 7u64));
    assert_eq!(len(&header), Some(128));
    decoded.answer(Err(Errno::ENOENT), &mut header);
    assert_eq!(header[..16], fields!(16u32, -libc::ENOENT, 7u64));
    assert_eq!(len(&header), Some(0));
}

fn attr() -> Attr {
    let time = |secs| Timestamp { secs, nanos: 5 };
    Attr {
        ino: Ino(42),
        kind: FileKind::Directory,
        perm: 0o1777,
        nlink: 3,
        uid: 4,
        gid: 5,
        rdev: 6,
        size: 7,
        blocks: 8,
        atime: time(-1),
        mtime: time(2),
        ctime: time(3),
    }
}

#[test]
fn attributes_stand_where_the_kernel_looks_for_them() {
    let mut bytes = [0xaa; 256];
    let mut out = Payload::new(&mut bytes, 256);
    out.attr_out(&attr(), REMEMBER);
    assert_eq!(out.len(), Ok(104));
    let expected = fields!(
        REMEMBER.as_secs(),
        0u32,
        0u32,
        42u64,
        7u64,
        8u64,
        -1i64,
        2u64,
        3u64,
        5u32,
        5u32,
        5u32,
        0o041_777u32,
        3u32,
        4u32,
        5u32,
        6u32,
        BLOCK_SIZE,
        0u32,
    );
    assert_eq!(bytes[..104], expected);
    let mut out = Payload::new(&mut bytes, 256);
    out.entry_out(&Some(attr()).into());
    assert_eq!(out.len(), Ok(128));
    assert_eq!(bytes[..8], 42u64.to_ne_bytes());
    assert_eq!(bytes[40..128], expected[16..]);
    let mut out = Payload::new(&mut bytes, 256);
    out.entry_out(&None.into());
    assert_eq!(out.len(), Ok(128));
    assert_eq!(bytes[..8], [0; 8]);
    assert_eq!(bytes[16..24], REMEMBER.as_secs().to_ne_bytes());
}

#[test]
fn a_listing_ends_before_what_does_not_fit() {
    let listed = |name| Listed {
        name,
        ino: Ino(9),
        kind: FileKind::Regular,
        cookie: 3,
        is_carried: false,
        is_shown: false,
        generation: 0,
    };
    let mut bytes = [0xaa; 100];
    let mut out = Payload::new(&mut bytes, 64);
    assert!(out.dirent(&listed(b"nine_byte"), None));
    assert!(
        !out.dirent(&listed(b"x"), None),
        "40 and 32 are more than 64"
    );
    assert!(!out.dirent(&listed(b"x"), Some(&attr())));
    assert_eq!(out.len(), Ok(40));
    let mut expected = fields!(9u64, 3u64, 9u32, 8u32);
    expected.extend_from_slice(b"nine_byte\0\0\0\0\0\0\0");
    assert_eq!(bytes[..40], expected);
    assert_eq!(bytes[40..], [0xaa; 60]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let mut bytes = [0; 100];
    let mut out = Payload::new(&mut bytes, 7);
    out.u32(1);
    out.u64(2);
    assert_eq!(out.len(), Err(Errno::EIO));
}

proptest! {
    /// Whatever stands in a slot, it is a request or an error, and what it names lies within its
    /// payload.
    #[test]
    fn noise_is_decoded_or_refused(
        opcode in prop_oneof![0u32..60, any::<u32>()],
        noise in prop::collection::vec(any::<u8>(), HEADER_LEN),
        payload in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..300),
        claimed_len in prop_oneof![0u32..400, any::<u32>()],
    ) {
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&noise);
        header[4..8].copy_from_slice(&opcode.to_ne_bytes());
        header[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 4].copy_from_slice(&claimed_len.to_ne_bytes());
        let decoded = Header::decode(&header).unwrap();
        match decoded.request(&header, &payload) {
            Ok(Request::Write { data, .. } | Request::Ioctl { data, .. }) => {
                prop_assert!(data.len() <= claimed_len as usize);
            }
            Ok(Request::Lookup { name } | Request::RemoveXattr { name }) => {
                prop_assert!(!name.contains(&0));
            }
            Ok(_) => prop_assert!(claimed_len as usize <= payload.len()),
            Err(errno) => prop_assert!(errno == Errno::EIO || errno == Errno::ENOSYS),
        }
        decoded.answer(Ok(claimed_len as usize), &mut header);
    }

    /// A listing never grows past its limit, and what it holds can be walked through.
    #[test]
    fn listings_stay_within_their_limit(
        limit in 0usize..600,
        names in prop::collection::vec(prop::collection::vec(1u8.., 1..=255), 0..6),
        with_attributes: bool,
    ) {
        let mut bytes = [0xaa; 512];
        let mut out = Payload::new(&mut bytes, limit);
        let attributes = with_attributes.then(attr);
        let mut fitted = 0;
        for (cookie, name) in names.iter().enumerate() {
            let listed = Listed { name, ino: Ino(1), kind: FileKind::Fifo, cookie: cookie as u64, is_carried: false, is_shown: false, generation: 0 };
            if !out.dirent(&listed, attributes.as_ref()) {
                break;
            }
            fitted += 1;
        }
        let len = out.len().unwrap();
        prop_assert!(len <= limit.min(512));
        let before = if with_attributes { ENTRY_OUT_LEN } else { 0 };
        let mut at = 0;
        for name in &names[..fitted] {
            let name_len = Fields(&bytes[at + before + 16..]).u32().unwrap() as usize;
            let name_at = at + before + DIRENT_LEN;
            prop_assert_eq!(&bytes[name_at..name_at + name_len], name.as_slice());
            at = (name_at + name_len).next_multiple_of(8);
        }
        prop_assert_eq!(at, len);
        prop_assert!(bytes[limit.min(512)..].iter().all(|&byte| byte == 0xaa));
    }
}
