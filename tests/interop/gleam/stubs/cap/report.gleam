pub type Value

pub fn string(value: String) -> Value {
  todo
}

pub fn int(value: Int) -> Value {
  todo
}

pub fn float(value: Float) -> Value {
  todo
}

pub fn bool(value: Bool) -> Value {
  todo
}

pub fn list(values: List(Value)) -> Value {
  todo
}

pub fn object(pairs: List(#(String, Value))) -> Value {
  todo
}
