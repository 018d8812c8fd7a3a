"""Java functions put together from methods that Java has, so that loops over many values run inside Java.

A call from Python into Java costs some 20 microseconds, a method handle in a Java stream a tenth of one. There is no Java compiler in what
the extra ``lucene`` installs; method handles (``java.lang.invoke``) are Java's own means to join methods at run time.

All of this has to be done within ``jvm.in_java``. Types are named as ``jvm.java_type`` takes them.
"""

from __future__ import annotations

from typing import Any

from .jvm import java_class, java_type

Handle = Any
"""A java.lang.invoke.MethodHandle: the parameters it takes and the type it returns."""


def method(owner: str, name: str, returns: str, *parameters: str) -> Handle:
    """Return the handle of a method; the object it is called on is its first parameter."""
    signature = java_class("java.lang.invoke.MethodType").methodType(java_type(returns), *map(java_type, parameters))
    return java_class("java.lang.invoke.MethodHandles").publicLookup().findVirtual(java_type(owner), name, signature)


def bind(handle: Handle, position: int, *values: Any) -> Handle:  # noqa: ANN401 - whatever Java takes
    """Return the handle with the parameters from ``position`` on given once and for all."""
    return java_class("java.lang.invoke.MethodHandles").insertArguments(handle, position, *values)


def chain(first: Handle, *rest: Handle) -> Handle:
    """Return the handle that gives what ``first`` returns to the next one, whose only parameter is of just that type, and so on."""
    for handle in rest:
        first = java_class("java.lang.invoke.MethodHandles").filterReturnValue(first, handle)
    return first


def as_interface(interface: str, handle: Handle) -> Any:  # noqa: ANN401 - a Java object
    """Return the handle as an object of an interface with one method, such as ``java.util.function.Function``."""
    return java_class("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(java_type(interface), handle)


def call(handle: Handle, *arguments: Any) -> Any:  # noqa: ANN401 - whatever Java takes and returns
    """Call a handle; for a method of which pyjnius picks the wrong one among several with the same name."""
    return handle.invokeWithArguments(java_class("java.util.Arrays").asList(*arguments))
