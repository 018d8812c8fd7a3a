"""Java functions composed of existing Java methods, so that loops over many values run inside Java.

A call from Python into Java takes some 20 microseconds. A call of a method handle in a Java stream takes 0.1 microseconds. Method handles
(``java.lang.invoke``) compose methods at run time; the extra ``lucene`` installs no Java compiler.

All functions must run within ``jvm.call_in_java``. Types are named as for ``jvm.java_type``.
"""

from __future__ import annotations

from typing import Any

from .jvm import java_class, java_type

Handle = Any
"""A java.lang.invoke.MethodHandle, a typed reference to a method."""


def method(owner: str, name: str, returns: str, *parameters: str) -> Handle:
    """Return the handle of a method. The handle's first parameter is the receiver."""
    signature = java_class("java.lang.invoke.MethodType").methodType(java_type(returns), *map(java_type, parameters))
    return java_class("java.lang.invoke.MethodHandles").publicLookup().findVirtual(java_type(owner), name, signature)


def bind(handle: Handle, position: int, *values: Any) -> Handle:  # noqa: ANN401 - whatever Java takes
    """Return a handle whose parameters from ``position`` on are bound to values."""
    return java_class("java.lang.invoke.MethodHandles").insertArguments(handle, position, *values)


def chain(first: Handle, *rest: Handle) -> Handle:
    """Return a handle that calls handles in turn. Each passes its result to the next handle, whose only parameter has exactly its type."""
    for handle in rest:
        first = java_class("java.lang.invoke.MethodHandles").filterReturnValue(first, handle)
    return first


def as_interface(interface: str, handle: Handle) -> Any:  # noqa: ANN401 - a Java object
    """Return an object of an interface with one method, such as ``java.util.function.Function``, which calls the handle."""
    return java_class("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(java_type(interface), handle)


def call(handle: Handle, *arguments: Any) -> Any:  # noqa: ANN401 - whatever Java takes and returns
    """Call a handle. This serves overloaded methods, of which pyjnius itself may choose the wrong variant."""
    return handle.invokeWithArguments(java_class("java.util.Arrays").asList(*arguments))
