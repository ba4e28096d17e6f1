# A room is one folder of src/ and one object library; `blockscale` is all rooms in one archive.

add_library(blockscale_flags INTERFACE)
target_compile_features(blockscale_flags INTERFACE cxx_std_20)
target_compile_options(blockscale_flags INTERFACE -Wall -Wextra -Werror -Werror=switch)
# Members left out of a designated initialiser take their defaults, on purpose.
target_compile_options(blockscale_flags INTERFACE -Wno-missing-field-initializers)
# g++ 12 sees overlapping copies in std::string where there are none (GCC bug 105651).
target_compile_options(blockscale_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# Exact arithmetic is a promise of this project: no contraction of a*b+c unless it is written so.
target_compile_options(blockscale_flags INTERFACE -ffp-contract=off)
if(BLOCKSCALE_SANITIZE)
  target_compile_options(blockscale_flags INTERFACE -fsanitize=${BLOCKSCALE_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(blockscale_flags INTERFACE -fsanitize=${BLOCKSCALE_SANITIZE})
endif()
target_include_directories(blockscale_flags INTERFACE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/generated)

# blockscale_room(NAME HEADERS ... SOURCES ... LIBRARIES ...): libraries are the outside ones.
function(blockscale_room name)
  cmake_parse_arguments(ROOM "" "" "HEADERS;SOURCES;LIBRARIES" ${ARGN})
  set(target blockscale_${name})
  add_library(${target} OBJECT ${ROOM_SOURCES})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src
                 FILES ${ROOM_HEADERS})
  target_link_libraries(${target} PUBLIC blockscale_flags ${ROOM_LIBRARIES})
  # `cmake --build . --target all_verify_interface_header_sets` compiles each header alone.
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON
                        POSITION_INDEPENDENT_CODE ON)
  set_property(GLOBAL APPEND PROPERTY BLOCKSCALE_ROOMS ${target})
endfunction()
