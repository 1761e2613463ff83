//! Random numbers whose seed can be given.

/// SplitMix64 (Steele, Lea and Flood, 2014): enough to choose moments and sizes.
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Seeded by the environment variable `name`, else by the clock; the seed is given for
    /// printing.
    pub fn from_environment(name: &str) -> (Random, u64) {
        let seed = std::env::var(name)
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(|| {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.map_or(0, |now| now.as_nanos() as u64)
            });
        (Random::new(seed), seed)
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Fails with the seed: the environment variable that takes it, and its value.
pub struct SayWhich<'a>(pub &'a str, pub u64);

impl Drop for SayWhich<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}={} to run this again", self.0, self.1);
        }
    }
}
