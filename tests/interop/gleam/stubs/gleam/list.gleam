pub fn append(first: List(a), second: List(a)) -> List(a) {
  todo
}

pub fn map(list: List(a), fun: fn(a) -> b) -> List(b) {
  todo
}
